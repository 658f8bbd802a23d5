"""The search: candidates asked, evaluated, recorded; at the end a winner."""
