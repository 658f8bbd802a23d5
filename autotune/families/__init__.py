"""The template language: front matter, expressions, spaces of configurations, rendering, the catalogue of families."""
