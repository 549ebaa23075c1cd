# SPDX-License-Identifier: Apache-2.0
"""Fault rules as Python's words and as a file."""

import json
from pathlib import Path

import pytest
from nnpa_client import zdnn
from nnpa_client.faults import FaultDelay, FaultMove, FaultRule, make_rule, read_rules, schema


def test_words_that_are_none_of_a_rule() -> None:
    """A field that rules do not have is refused before anything is sent."""
    with pytest.raises(ValueError, match=r"nht: unknown, expected one of operation, .* note"):
        make_rule(zdnn.add, {"nht": 3})
    with pytest.raises(ValueError, match="nth: 'three'"):
        make_rule(zdnn.add, {"nth": "three"})


FILE = """\
rules:
  - operation: zdnn_conv2d
    nth: 3
    status: ZDNN_EXCEEDS_MDIS
  - status: 0x000C0012
    output_written: true
    shape: [1, 32]
    probability: 0.25
  - delay: {seconds: 0.5, distribution: exponential}
  - move: {machine: telum2-nonnpa, calls: 4}
"""


def test_a_file_of_rules(tmp_path: Path) -> None:
    """Rules from a YAML file, or from JSON, equal rules from keywords."""
    (tmp_path / "rules.yaml").write_text(FILE)
    conv2d = {"nth": 3, "status": "ZDNN_EXCEEDS_MDIS"}
    number = {"status": 0x000C0012, "output_written": True, "shape": (1, 32), "probability": 0.25}
    rules = [
        make_rule(zdnn.conv2d, conv2d),
        make_rule(None, number),
        make_rule(None, {"delay": FaultDelay(seconds=0.5, distribution="exponential")}),
        make_rule(None, {"move": FaultMove(machine="telum2-nonnpa", calls=4)}),
    ]
    assert read_rules(tmp_path / "rules.yaml") == rules
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"note": True}]}))
    assert read_rules(tmp_path / "rules.json") == [FaultRule(note=True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [", "no YAML"),
        ("- 1", "must be a mapping with one key, rules"),
        ("rules: []\nmore: 1", "must be a mapping with one key, rules"),
        ("rules: [7]", "rules[0]: 7, must be a mapping"),
        ("rules: [{note: true}, {operatoin: x}]", "rules[1].operatoin: unknown, must be one of"),
        ("rules: [{nth: many}]", "rules[0]: Failed to parse nth"),
        ("rules: [!!python/object:os.system {}]", "no YAML"),
        ("rules: [{note: true, flip_bits: 2}]", "rules[0]: "),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file that holds no rules is refused by name and place."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"rules\.yaml") as caught:
        read_rules(path)
    assert message in str(caught.value)


def test_the_schema_is_the_contract() -> None:
    """The schema of the file has the fields of the contract, and its effects."""
    rule = schema()["$defs"]["rule"]
    descriptor = FaultRule.DESCRIPTOR
    assert set(rule["properties"]) == set(descriptor.fields_by_name)
    effects = {field.name for field in descriptor.oneofs_by_name["effect"].fields}
    assert {alternative["required"][0] for alternative in rule["oneOf"]} == effects
    for name in ("delay", "move"):
        message = descriptor.fields_by_name[name].message_type
        assert message is not None
        assert set(rule["properties"][name]["properties"]) == set(message.fields_by_name)
