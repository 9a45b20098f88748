"""The cooking school's shop, an MCP server: `python server.py [PORT]`.

It writes orders into the database that the old service writes into.
"""

import logging
import os
import sys

from mcp.server import MCPServer
from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import create_async_engine

log = logging.getLogger("shop")

engine = create_async_engine(f"sqlite+aiosqlite:///{os.environ.get('SHOP_FILE', 'shop.sqlite')}")
tables = MetaData()
orders = Table(
    "orders",
    tables,
    Column("id", Integer, primary_key=True),
    Column("item", String, nullable=False),
    Column("grams", Integer, nullable=False),
)
shop = MCPServer("shop")


@shop.tool()
async def order(item: str, grams: int) -> str:
    """Order an ingredient from the school's shop."""
    async with engine.begin() as connection:
        await connection.run_sync(tables.create_all)
        new = insert(orders).values(item=item, grams=grams).returning(orders.c.id)
        number = (await connection.execute(new)).scalar_one()
    log.info("order %d: %d g of %s", number, grams, item)
    return f"order {number}: {grams} g of {item}"


if __name__ == "__main__":
    shop.run("streamable-http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 9100)
