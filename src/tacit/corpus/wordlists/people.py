"""Common first and last names and invented places, combined at random into people who do not exist."""

from __future__ import annotations

__all__ = ["FIRST_NAMES", "LAST_NAMES", "STREETS", "STREET_KINDS", "TOWN_BEGINNINGS", "TOWN_ENDINGS"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = {
    "f": _words(
        "Maria Susan Linda Patricia Karen Nancy Betty Helen Sandra Donna Carol Ruth Sharon Michelle Laura "
        "Sarah Kimberly Deborah Jessica Shirley Cynthia Angela Melissa Brenda Amy Anna Rebecca Virginia "
        "Kathleen Pamela Martha Debra Amanda Stephanie Carolyn Christine Marie Janet Catherine Frances Ann "
        "Joyce Diane Alice Julie Heather Teresa Doris Gloria Evelyn Jean Cheryl Mildred Katherine Joan Ashley "
        "Judith Rosa Aisha Mei Priya Fatima Ingrid Yuki"
    ),
    "m": _words(
        "James John Robert Michael William David Richard Charles Joseph Thomas Christopher Daniel Paul Mark "
        "Donald George Kenneth Steven Edward Brian Ronald Anthony Kevin Jason Matthew Gary Timothy Jose Larry "
        "Jeffrey Frank Scott Eric Stephen Andrew Raymond Gregory Joshua Jerry Dennis Walter Patrick Peter "
        "Harold Douglas Henry Carl Arthur Ryan Roger Joe Juan Jack Albert Jonathan Justin Terry Gerald Keith "
        "Samuel Omar Wei Rajesh Hassan Sven Kenji"
    ),
}

LAST_NAMES = _words(
    "Smith Johnson Williams Jones Brown Davis Miller Wilson Moore Taylor Anderson Thomas Jackson White "
    "Harris Martin Thompson Garcia Martinez Robinson Clark Rodriguez Lewis Lee Walker Hall Allen Young "
    "Hernandez King Wright Lopez Hill Scott Green Adams Baker Gonzalez Nelson Carter Mitchell Perez "
    "Roberts Turner Phillips Campbell Parker Evans Edwards Collins Stewart Sanchez Morris Rogers Reed "
    "Cook Morgan Bell Murphy Bailey Rivera Cooper Richardson Cox Howard Ward Torres Peterson Gray Ramirez "
    "Watson Brooks Kelly Sanders Price Bennett Wood Barnes Ross Henderson Coleman Jenkins Perry Powell "
    "Long Patterson Hughes Flores Washington Butler Simmons Foster Gonzales Bryant Alexander Russell "
    "Griffin Diaz Hayes Nguyen Patel Kim Khan Okafor Novak Larsen Tanaka Haddad Kowalski Silva Rossi"
)

STREETS = _words(
    "Alder Aspen Birch Cedar Chestnut Cypress Elm Hawthorn Hazel Hickory Juniper Larch Laurel Linden "
    "Magnolia Maple Oak Poplar Rowan Spruce Sycamore Walnut Willow Yew Bramble Clover Fern Heather Ivy "
    "Thistle"
)
STREET_KINDS = _words("Street Avenue Lane Road Drive Court Place Terrace")

TOWN_BEGINNINGS = _words("Ash Bram Col East Fair Glen Harrow Kings Lang Mill North Oaken River Stan Thorn West")
TOWN_ENDINGS = _words("brook bury dale field ford ham ley mere port stead ton wick")
