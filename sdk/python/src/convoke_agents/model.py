"""The base of the models of the API."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, SkipValidation

JsonObject: TypeAlias = Annotated[dict[str, Any], SkipValidation]
"""A message, as its sender wrote it: nothing of it is checked or changed."""


class Model(BaseModel):
    """A response of the service. A field that only a newer service has is kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
