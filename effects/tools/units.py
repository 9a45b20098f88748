"""Units of measure by their names, English and Chinese.

Factors lead to the base unit of each dimension: metre, kilogram, litre, metre per second, square
metre, second, byte. Traditional Chinese units are the market units of 1930 as used today (1 斤 =
500 g, 1 里 = 500 m, 1 亩 = 2000/3 m²). Gallons, pints, cups and fluid ounces are those of the USA.
"""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: the value in base units is `value * factor + offset`."""

    dimension: str
    symbol: str
    factor: float
    offset: float = 0.0


_FAHRENHEIT = 5 / 9

# (dimension, symbol, factor, offset, other names)
_TABLE: tuple[tuple[str, str, float, float, str], ...] = (
    ("length", "m", 1, 0, "meter meters metre metres 米 公尺"),
    ("length", "km", 1e3, 0, "kilometer kilometers kilometre kilometres 千米 公里"),
    ("length", "dm", 0.1, 0, "decimeter decimeters decimetre decimetres 分米"),
    ("length", "cm", 0.01, 0, "centimeter centimeters centimetre centimetres 厘米 公分"),
    ("length", "mm", 1e-3, 0, "millimeter millimeters millimetre millimetres 毫米"),
    ("length", "um", 1e-6, 0, "μm µm micrometer micrometers micrometre micrometres micron 微米"),
    ("length", "nm", 1e-9, 0, "nanometer nanometers nanometre nanometres 纳米"),
    ("length", "in", 0.0254, 0, "inch inches 英寸 吋"),
    ("length", "ft", 0.3048, 0, "foot feet 英尺 呎"),
    ("length", "yd", 0.9144, 0, "yard yards 码"),
    ("length", "mi", 1609.344, 0, "mile miles 英里 哩"),
    ("length", "nmi", 1852, 0, "nautical_mile nautical_miles 海里"),
    ("length", "里", 500, 0, "市里 华里 li"),
    ("length", "丈", 10 / 3, 0, "市丈 zhang"),
    ("length", "尺", 1 / 3, 0, "市尺 chi"),
    ("length", "寸", 1 / 30, 0, "市寸 cun"),
    ("mass", "kg", 1, 0, "kilogram kilograms kilo kilos 千克 公斤"),
    ("mass", "g", 1e-3, 0, "gram grams gramme grammes 克"),
    ("mass", "mg", 1e-6, 0, "milligram milligrams 毫克"),
    ("mass", "t", 1e3, 0, "ton tons tonne tonnes 吨 公吨"),
    ("mass", "lb", 0.45359237, 0, "lbs pound pounds 磅 英磅"),
    ("mass", "oz", 0.028349523125, 0, "ounce ounces 盎司"),
    ("mass", "st", 6.35029318, 0, "stone stones 英石"),
    ("mass", "斤", 0.5, 0, "市斤 jin catty"),
    ("mass", "两", 0.05, 0, "市两 liang"),
    ("mass", "钱", 0.005, 0, "市钱"),
    ("temperature", "°C", 1, 273.15, "c ℃ celsius degc 摄氏度 摄氏"),
    ("temperature", "°F", _FAHRENHEIT, 459.67 * _FAHRENHEIT, "f ℉ fahrenheit degf 华氏度 华氏"),
    ("temperature", "K", 1, 0, "kelvin kelvins 开尔文 开"),
    ("volume", "L", 1, 0, "l liter liters litre litres 升 公升"),
    ("volume", "mL", 1e-3, 0, "ml milliliter milliliters millilitre millilitres cc cm3 毫升"),
    ("volume", "m3", 1e3, 0, "m³ m^3 cubic_meter cubic_meters cubic_metre 立方米"),
    ("volume", "gal", 3.785411784, 0, "gallon gallons 加仑"),
    ("volume", "qt", 0.946352946, 0, "quart quarts 夸脱"),
    ("volume", "pt", 0.473176473, 0, "pint pints 品脱"),
    ("volume", "cup", 0.2365882365, 0, "cups 杯"),
    ("volume", "fl_oz", 0.0295735295625, 0, "floz fluid_ounce fluid_ounces 液盎司"),
    ("volume", "tbsp", 0.01478676478125, 0, "tablespoon tablespoons 汤匙"),
    ("volume", "tsp", 0.00492892159375, 0, "teaspoon teaspoons 茶匙"),
    ("speed", "m/s", 1, 0, "mps meters_per_second metres_per_second 米/秒 米每秒"),
    (
        "speed",
        "km/h",
        1 / 3.6,
        0,
        "kmh kph kilometers_per_hour 公里/小时 千米/小时 公里每小时 时速",
    ),
    ("speed", "mph", 0.44704, 0, "mi/h miles_per_hour 英里/小时 英里每小时"),
    ("speed", "kn", 1852 / 3600, 0, "kt knot knots 节"),
    ("speed", "ft/s", 0.3048, 0, "fps feet_per_second 英尺/秒"),
    ("area", "m2", 1, 0, "m² m^2 sqm square_meter square_meters square_metre 平方米 平米"),
    ("area", "km2", 1e6, 0, "km² km^2 square_kilometer square_kilometers 平方公里 平方千米"),
    ("area", "cm2", 1e-4, 0, "cm² cm^2 square_centimeter square_centimeters 平方厘米"),
    ("area", "ft2", 0.09290304, 0, "ft² ft^2 sqft square_foot square_feet 平方英尺"),
    ("area", "mi2", 2589988.110336, 0, "mi² mi^2 square_mile square_miles 平方英里"),
    ("area", "ha", 1e4, 0, "hectare hectares 公顷"),
    ("area", "acre", 4046.8564224, 0, "acres ac 英亩"),
    ("area", "亩", 2000 / 3, 0, "市亩 mu"),
    ("time", "s", 1, 0, "sec secs second seconds 秒 秒钟"),
    ("time", "ms", 1e-3, 0, "millisecond milliseconds 毫秒"),
    ("time", "us", 1e-6, 0, "μs µs microsecond microseconds 微秒"),
    ("time", "min", 60, 0, "mins minute minutes 分 分钟"),
    ("time", "h", 3600, 0, "hr hrs hour hours 小时 钟头"),
    ("time", "d", 86400, 0, "day days 天 日"),
    ("time", "week", 604800, 0, "weeks wk 周 星期 礼拜"),
    ("time", "year", 31536000, 0, "years yr 年"),
    ("data", "B", 1, 0, "byte bytes 字节"),
    ("data", "bit", 0.125, 0, "bits b 比特 位"),
    ("data", "KB", 1e3, 0, "kB kilobyte kilobytes 千字节"),
    ("data", "MB", 1e6, 0, "megabyte megabytes 兆字节 兆"),
    ("data", "GB", 1e9, 0, "gigabyte gigabytes 吉字节"),
    ("data", "TB", 1e12, 0, "terabyte terabytes 太字节"),
    ("data", "PB", 1e15, 0, "petabyte petabytes"),
    ("data", "KiB", 1024, 0, "kibibyte kibibytes"),
    ("data", "MiB", 1024**2, 0, "mebibyte mebibytes"),
    ("data", "GiB", 1024**3, 0, "gibibyte gibibytes"),
    ("data", "TiB", 1024**4, 0, "tebibyte tebibytes"),
    ("data", "Kb", 125, 0, "kb kbit kilobit kilobits"),
    ("data", "Mb", 125e3, 0, "mbit megabit megabits"),
    ("data", "Gb", 125e6, 0, "gbit gigabit gigabits"),
)

UNITS: dict[str, Unit] = {
    name: Unit(dimension, symbol, factor, offset)
    for dimension, symbol, factor, offset, names in _TABLE
    for name in (symbol, *names.split())
}


def unit(name: str) -> Unit | None:
    """Find a unit by symbol or name; upper and lower case matter only where they must (MB, Mb)."""
    written = "_".join(name.split())
    return UNITS.get(written) or UNITS.get(written.lower()) or UNITS.get(written.upper())


def convert(value: float, given: Unit, wanted: Unit) -> float:
    """Convert between two units of one dimension."""
    base = value * given.factor + given.offset
    return (base - wanted.offset) / wanted.factor
