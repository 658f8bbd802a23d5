"""A candidate: a template with one value for each of its parameters."""

from dataclasses import dataclass

from autotune.core.values import Config, Value, format_config


@dataclass(frozen=True)
class Candidate:
    """`template` is the family's name within its op; `template_hash` tells whether it has changed since."""

    template: str
    template_hash: str
    values: tuple[tuple[str, Value], ...]

    @property
    def config(self) -> dict[str, Value]:
        """Parameter values by name, in the template's order."""
        return dict(self.values)

    @property
    def key(self) -> str:
        """`flash_simt BLOCK_M=64 …`: unique within an op and a version of the template."""
        return f"{self.template} {format_config(self.config)}".rstrip()

    def __str__(self) -> str:
        return self.key


def make_candidate(template: str, template_hash: str, config: Config) -> Candidate:
    """A candidate from a mapping; the order of the mapping is kept."""
    return Candidate(template, template_hash, tuple(config.items()))
