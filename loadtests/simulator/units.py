"""Unit conversions in a user's text, as arguments for the tool `convert_units`."""

import re

import msgspec

NAMES = {
    "km": ("kilometers", "kilometres", "kilometer", "kilometre", "km", "公里", "千米"),
    "m": ("meters", "metres", "meter", "metre", "m", "米"),
    "cm": ("centimeters", "centimetres", "centimeter", "cm", "厘米"),
    "mi": ("miles", "mile", "mi", "英里"),
    "ft": ("feet", "foot", "ft", "英尺"),
    "in": ("inches", "inch", "英寸"),
    "kg": ("kilograms", "kilogram", "kilos", "kg", "公斤", "千克"),
    "g": ("grams", "gram", "g", "克"),
    "lb": ("pounds", "pound", "lbs", "lb", "磅"),
    "oz": ("ounces", "ounce", "oz", "盎司"),
    "l": ("liters", "litres", "liter", "litre", "升"),
    "gal": ("gallons", "gallon", "gal", "加仑"),
    "c": ("degrees celsius", "celsius", "°c", "摄氏度"),
    "f": ("degrees fahrenheit", "fahrenheit", "°f", "华氏度"),
}
SYMBOLS = {name: symbol for symbol, names in NAMES.items() for name in names}
UNIT = "|".join(sorted(map(re.escape, SYMBOLS), key=len, reverse=True))
# A Latin unit must end as a word does; a Chinese one may be followed by anything.
UNIT = rf"(?:{UNIT})(?![A-Za-z])"
NUMBER = r"-?\d+(?:\.\d+)?"
FORWARD = re.compile(
    rf"({NUMBER})\s*({UNIT})\s*(?:to|into|in|as|换算成|换算为|换成|转换成|转成|等于多少|是多少|合多少|折合多少|等于几)\s*({UNIT})",
    re.IGNORECASE,
)
BACKWARD = re.compile(
    rf"how many\s+({UNIT})\s+(?:is|are|in|are in|make)\s+({NUMBER})\s*({UNIT})", re.IGNORECASE
)


class Conversion(msgspec.Struct, frozen=True):
    """A value and the units it goes from and to, as symbols."""

    value: float
    source: str
    target: str


def conversions(text: str) -> list[tuple[int, Conversion]]:
    """Find every conversion asked for, with its position."""
    found = [(hit.start(), _conversion(hit[1], hit[2], hit[3])) for hit in FORWARD.finditer(text)]
    found += [(hit.start(), _conversion(hit[2], hit[3], hit[1])) for hit in BACKWARD.finditer(text)]
    return found


def _conversion(value: str, source: str, target: str) -> Conversion:
    number = float(value)
    whole = int(number) if number.is_integer() else number
    return Conversion(whole, SYMBOLS[source.lower()], SYMBOLS[target.lower()])
