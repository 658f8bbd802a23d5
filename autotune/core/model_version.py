"""Which model made an estimate. It gets a new number when its figures change: they are not compared with older ones."""

MODEL = 3

DRIVER = f"estimates, model {MODEL}"
"""Stands in records where a measurement names the driver: what the times depend on beside kernel and compiler."""


UNCOUNTED = "roofline by launch, with efficiencies from registers, spills, occupancy and grid"
"""Ends the method of an estimate that rests on shape and registers alone, because the work could not be counted."""

UNCOUNTED_DRIVER = "estimates, model 0"
"""In place of `DRIVER` for such an estimate: its figures compare with no model's, and come after all of them."""


def model_of(driver: str) -> int:
    """The model that a record's driver names: 0 where work was not counted, 1 from before models had numbers."""
    number = driver.removeprefix("estimates, model ")
    return int(number) if number != driver and number.isdigit() else 1
