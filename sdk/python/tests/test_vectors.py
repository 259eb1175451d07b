"""The vectors that every implementation must agree on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convoke_agents import VerificationError, verify_signature
from convoke_agents.verify import decode_secrets

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[3] / "vectors/signature.json").read_text("utf8"))


@pytest.mark.parametrize("case", VECTORS["verify"], ids=lambda case: case["name"])
def test_verifying_decides_as_every_implementation_does(case: dict[str, Any]) -> None:
    reason = None
    try:
        verify_signature(case["body"].encode(), case["headers"], case["secrets"], now=lambda: case["now_s"])
    except VerificationError as error:
        reason = error.reason
    assert reason == case["reason"]


@pytest.mark.parametrize("case", VECTORS["sign"], ids=lambda case: case["name"])
def test_what_convoke_signs_is_genuine_under_each_of_its_secrets(case: dict[str, Any]) -> None:
    headers = {
        "Webhook-Id": case["webhook_id"],
        "Webhook-Timestamp": str(case["webhook_timestamp"]),
        "Webhook-Signature": case["webhook_signature"],
    }
    for secret in case["secrets"]:
        verify_signature(case["body"], headers, secret, now=lambda: case["webhook_timestamp"])


@pytest.mark.parametrize("secret", VECTORS["invalid_secrets"])
def test_a_secret_that_means_something_else_elsewhere_is_refused(secret: str) -> None:
    with pytest.raises(VerificationError, match="invalid_secret"):
        decode_secrets(secret)


def test_one_bad_secret_beside_a_good_one_is_refused() -> None:
    good = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="
    with pytest.raises(VerificationError, match="invalid_secret"):
        decode_secrets([good, "whsec_"])
    with pytest.raises(VerificationError, match="invalid_secret"):
        decode_secrets([])


@pytest.mark.parametrize("secret", [None, [None]])
def test_a_secret_that_a_setting_does_not_have_is_said_in_words(secret: Any) -> None:
    with pytest.raises(VerificationError, match="invalid_secret"):
        decode_secrets(secret)
