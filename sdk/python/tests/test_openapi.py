"""The SDK has what the API has: the methods, their arguments and the models are those of the OpenAPI document."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from convoke_agents import AsyncConvokeClient, ConvokeClient, models

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[3] / "openapi.json").read_text("utf8"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
# Operations for browsers only: a session is a cookie with a token that protects it.
OF_BROWSERS = {"getSession", "signIn", "signInByLink", "signOut"}
# Operations whose arguments differ from the fields of the request.
BY_HAND = {"pull", "streamEvents", "sendReply", "redeemInvite"}


def schemas_in(part: Any) -> set[str]:
    """The names of the schemas that a part of the document refers to, those within others too."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            name = str(node.get("$ref", "")).rsplit("/", 1)[-1]
            if name in SCHEMAS and name not in found:
                found.add(name)
                waiting.append(SCHEMAS[name])
    return found


ANSWERED = schemas_in([operation["responses"] for operation in OPERATIONS])


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


@pytest.mark.parametrize("client", [ConvokeClient, AsyncConvokeClient])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation["operationId"])
def test_every_operation_has_its_method_with_the_fields_of_the_request(client: type, operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    method = getattr(client, snake(name), None)
    if name in OF_BROWSERS:
        assert method is None
        return
    assert method is not None
    if name in BY_HAND:
        return
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields = set(SCHEMAS[body["$ref"].rsplit("/", 1)[1]]["properties"]) if "$ref" in body else set()
    parameters = {each["name"].replace("-", "_") for each in operation.get("parameters", [])}
    if name == "sendMessages":
        # Each message has fields of its own for its trace.
        parameters -= {"traceparent", "tracestate"}
    assert set(inspect.signature(method).parameters) - {"self"} == fields | parameters


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        public = inspect.getmembers(client, lambda each: inspect.isfunction(each))
        return {name: list(inspect.signature(each).parameters) for name, each in public if not name.startswith("_")}

    blocking, awaited = methods(ConvokeClient), methods(AsyncConvokeClient)
    assert blocking.pop("close") == awaited.pop("aclose")
    assert blocking == awaited


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_model_has_the_fields_of_its_schema(name: str) -> None:
    schema = SCHEMAS[name]
    model = getattr(models, name, None)
    if model is None:
        assert name not in ANSWERED, "only what is given has no model"
    elif "enum" in schema:
        assert list(get_args(model)) == schema["enum"]
    elif name != "JsonObject":
        assert issubclass(model, BaseModel)
        assert set(model.model_fields) == set(schema["properties"])
        required = {field for field, info in model.model_fields.items() if info.is_required()}
        assert required == set(schema.get("required", []))


def test_a_newer_service_may_say_more_and_in_other_words() -> None:
    seen = models.ServiceStatus.model_validate({"status": "better than ok", "mood": "good"})
    assert seen.status == "better than ok"
    assert seen.model_extra == {"mood": "good"}


def test_no_secret_is_printed_by_accident() -> None:
    for name in models.__all__:
        model = getattr(models, name)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        for field, info in model.model_fields.items():
            assert info.repr is not bool(re.search(r"secret$|^token$|^csrf_token$|^link$|^api_key$", field)), (
                name,
                field,
            )
