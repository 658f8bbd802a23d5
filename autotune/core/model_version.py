"""Which model made an estimate. It gets a new number when its figures change: they are not compared with older ones."""

MODEL = 3

DRIVER = f"estimates, model {MODEL}"
"""Stands in records where a measurement names the driver: what the times depend on beside kernel and compiler."""


def model_of(driver: str) -> int:
    """The model that a record's driver names; 1 for records from before models had numbers."""
    number = driver.removeprefix("estimates, model ")
    return int(number) if number != driver and number.isdigit() else 1
