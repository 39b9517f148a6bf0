"""Four agents decide on a trade, and the order is placed once, whoever is killed when.

    python strategy.py [RUN]       decide and place the order; run it again to go on
    python strategy.py --book      what the exchange has

Analysis hands its signal to recommendation, recommendation its idea to risk, risk an order to
execution. Placing an order is `once`, the default for a tool that says nothing: killed between
intent and outcome, the run stops until somebody has looked into the order book and said what is
true. The prices are a synthetic series, made from a seed.
"""

import random
import sqlite3
import sys
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

import hansard

SYMBOL = "SYN"
BOOK = Path("order_book.sqlite")

RULES = (
    hansard.deny("place_order", unless={"quantity": hansard.at_most(100)}, name="position limit"),
    hansard.budget("orders a run", limit=3, tool="place_order"),
)


@hansard.tool(effects="pure")
def daily_prices(symbol: str, days: int) -> list[float]:
    """A synthetic series: a seeded random walk, not a market's prices."""
    # Replace the next two lines by a call of your data provider.
    step = random.Random(f"{symbol} {days}")  # noqa: S311 -- it must be the same each time
    moves = (step.gauss(0.1, 1) for _ in range(days - 1))
    return [round(price, 2) for price in accumulate(moves, initial=100.0)]


@hansard.tool(effects="pure")
def moving_average(prices: list[float], days: int) -> float:
    """The mean of the last so many days."""
    return round(mean(prices[-days:]), 4)


@hansard.tool(effects="pure", kind="model")
def judge(short: float, long: float) -> dict[str, float]:
    """How well each action fits, from 0 to 1: by rule, so that this runs anywhere."""
    # Replace the next two lines by a call of your model.
    trend = max(-1.0, min(1.0, 20 * (short - long) / long))
    return {"buy": round((1 + trend) / 2, 4), "sell": round((1 - trend) / 2, 4), "hold": 0.5}


@hansard.tool
def place_order(symbol: str, side: str, quantity: int, limit: float) -> int:
    """Place an order at the exchange; its number there."""
    # Replace the next four lines by a call of your broker. This exchange takes every order it gets.
    with sqlite3.connect(BOOK) as book:
        book.execute("CREATE TABLE IF NOT EXISTS orders (symbol, side, quantity, price)")
        placed = book.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?)", (symbol, side, quantity, limit)
        )
    return placed.lastrowid or 0


def analyse(session: hansard.Session) -> dict[str, float]:
    """What the prices say."""
    prices = daily_prices(SYMBOL, 120)
    signal = {
        "price": prices[-1],
        "short": moving_average(prices, 10),
        "long": moving_average(prices, 60),
    }
    session.checkpoint("analysed", **signal)
    session.hand_off("recommendation", because="the averages are known", **signal)
    return signal


def recommend(session: hansard.Session, signal: dict[str, float]) -> str:
    """What to do."""
    scores = judge(signal["short"], signal["long"])
    action = max(scores, key=lambda name: scores[name])
    session.decide(
        f"What to do with {SYMBOL}?",
        selected=action,
        alternatives=[{"id": name, "score": score} for name, score in scores.items()],
        threshold=0.55,
        because=f"the short average is {signal['short']}, the long one {signal['long']}",
    )
    session.checkpoint("recommended", action=action)
    session.hand_off("risk", because="an idea needs a size", action=action)
    return action


def limit_risk(session: hansard.Session, action: str, price: float) -> dict[str, Any] | None:
    """The order that we can bear, if any."""
    quantity = min(100, int(5_000 / price))
    bearable = action != "hold" and quantity > 0
    session.decide(
        "How much?",
        selected=str(quantity if bearable else 0),
        threshold=100,
        because="at most 5,000 in one order, and 100 pieces",
    )
    session.checkpoint("limited", quantity=quantity)
    session.hand_off("execution", because="it is within the limits")
    if not bearable:
        return None
    return {"symbol": SYMBOL, "side": action, "quantity": quantity, "limit": price}


def execute(session: hansard.Session, order: dict[str, Any]) -> str:
    """Place the order."""
    number = place_order(**order)
    session.checkpoint("executed", order=number)
    return f"order {number}: {order['side']} {order['quantity']} {SYMBOL} at {order['limit']}"


def trade(record: hansard.Record, run: str) -> str:
    """Let the four decide; what came of it."""
    with record.run("trading", run=run, agent="analysis", role="analyst") as analysis:
        signal = analyse(analysis)
        with record.run(run=run, agent="recommendation", role="advisor") as advisor:
            action = recommend(advisor, signal)
        with record.run(run=run, agent="risk", role="risk") as risk:
            order = limit_risk(risk, action, signal["price"])
        if order is None:
            return "no order"
        with record.run(run=run, agent="execution", role="trader") as trader:
            return execute(trader, order)


def show_book() -> None:
    """Print what the exchange has."""
    if BOOK.exists():
        with sqlite3.connect(BOOK) as book:
            for number, *order in book.execute("SELECT rowid, * FROM orders"):
                print(number, *order)


def main(run: str) -> None:
    """Trade, or say what is in doubt."""
    with hansard.connect(workspace="trading", gate=RULES) as record:
        try:
            print(trade(record, run))
        except hansard.InDoubt as doubt:
            sys.exit(f"{doubt}\nthe order book: python {Path(__file__).name} --book")


if __name__ == "__main__":
    if sys.argv[1:] == ["--book"]:
        show_book()
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "trade-1")
