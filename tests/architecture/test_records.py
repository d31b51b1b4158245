"""What is written and read back is described once: the types of records know every entry of what is stored."""

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from gcab.classifier.calibration import Calibration
from gcab.classifier.history import Change, Kind
from gcab.classifier.model import Taught
from gcab.pretrained.description import Description
from gcab.records import CalibrationRecord, ChangeRecord, PretrainedRecord, TaughtRecord

DESCRIBED = [
    (Taught, TaughtRecord),
    (Change, ChangeRecord),
    (Calibration, CalibrationRecord),
    (Description, PretrainedRecord),
]


@pytest.mark.parametrize(("stored", "record"), DESCRIBED)
def test_a_record_has_every_entry_of_what_is_stored(stored: Any, record: type) -> None:
    assert set(get_type_hints(record)) == {item.name for item in fields(stored)}


def test_the_kinds_of_changes_are_those_of_the_record() -> None:
    assert get_args(get_type_hints(ChangeRecord)["kind"]) == get_args(Kind)
