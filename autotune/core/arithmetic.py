"""How a family's products may differ from exact ones of the dtype's elements: `arithmetic` of its front matter.

A family is verified by a bound that its own arithmetic gives (`autotune.ops.expected`), and users are told which it is.
"""

from collections.abc import Mapping

from autotune.core.errors import TemplateError

FULL = "full"

ARITHMETICS: Mapping[str, str] = {
    FULL: "products of the elements as they are, summed in fp32",
    "tf32x3": "3xTF32, each fp32 product as three on tensor cores, the small two in tf32 or bf16, summed in fp32",
}
"""What a family may declare, and what that means. FULL where it declares nothing."""


def read_arithmetic(value: object) -> str:
    """What the front matter says, if it is known.

    Raises:
        TemplateError: it is not.
    """
    if not isinstance(value, str) or value not in ARITHMETICS:
        raise TemplateError(f"arithmetic={value!r} is not one of {', '.join(ARITHMETICS)}")
    return value
