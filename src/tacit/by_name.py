"""Options whose class a registry has: a model reads the registry when it is built, so that there is no second list of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

__all__ = ["ByName"]


@dataclass(frozen=True)
class ByName:
    """Options whose class is the one that a registry has for the word of one of their fields.

    Args:
        option: which field has the word; each class has it as a ``Literal``.
        registry: the classes by their words. A union of them in a type would be a second list.
    """

    option: str
    registry: Mapping[str, type[BaseModel]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # subscripted, since `|` joins the members of no list; a rule of style would have it so
        return handler.generate_schema(
            Annotated[Union[tuple(self.registry.values())], Field(discriminator=self.option)]  # noqa: UP007
        )
