"""The cooking school's shop, an MCP server: `python server.py [PORT]`.

It writes orders into the database that the old service writes into.
"""

import asyncio
import logging
import os
import sqlite3
import sys
from contextlib import closing

from mcp.server import MCPServer

log = logging.getLogger("shop")

TABLE = """CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY, item VARCHAR NOT NULL, grams INTEGER NOT NULL
)"""
shop = MCPServer("shop")


@shop.tool()
async def order(item: str, grams: int) -> str:
    """Order an ingredient from the school's shop."""
    number = await asyncio.to_thread(insert, item, grams)
    log.info("order %d: %d g of %s", number, grams, item)
    return f"order {number}: {grams} g of {item}"


def insert(item: str, grams: int) -> int | None:
    """Insert a row; returns its number."""
    place = os.environ.get("SHOP_FILE", "shop.sqlite")
    with closing(sqlite3.connect(place)) as database, database:
        database.execute(TABLE)
        row = "INSERT INTO orders (item, grams) VALUES (?, ?)"
        return database.execute(row, (item, grams)).lastrowid


if __name__ == "__main__":
    shop.run("streamable-http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 9100)
