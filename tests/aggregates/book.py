"""A trading book's aggregates, as a program of a user's has them."""

from decimal import Decimal
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.domain import Aggregate, event

import hansard


class Overdrawn(Exception):
    """The account's balance is too low."""


class Account(Aggregate):
    """A trader's account, named after its id."""

    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = Decimal("0.00")
        self.orders: list[UUID] = []

    @staticmethod
    def create_id(owner: str) -> UUID:
        """Return the id of an owner's only account."""
        return uuid5(NAMESPACE_URL, f"/accounts/{owner}")

    @event("Credited")
    def credit(self, amount: Decimal) -> None:
        """Put money in."""
        self.balance += amount

    def pay(self, amount: Decimal, order: UUID) -> None:
        """Take money out for an order."""
        if amount > self.balance:
            raise Overdrawn
        self._pay(amount, order)

    @event("Paid")
    def _pay(self, amount: Decimal, order: UUID) -> None:
        self.balance -= amount
        self.orders.append(order)


class Order(Aggregate):
    """An order, by an id of chance."""

    @event("Placed")
    def __init__(self, symbol: str, quantity: int, limit: Decimal) -> None:
        self.symbol = symbol
        self.quantity = quantity
        self.limit = limit
        self.is_cancelled = False

    @event("Cancelled")
    def cancel(self, because: tuple[str, ...]) -> None:
        """Take it back."""
        self.is_cancelled = True
        self.because = because


hansard.aggregate_type(
    Account,
    name="account",
    events={
        "account-opened.v1": "Opened",
        "account-credited.v1": "Credited",
        "account-paid.v1": "Paid",
    },
)
hansard.aggregate_type(
    Order, name="order", events={"order-placed.v1": "Placed", "order-cancelled.v1": "Cancelled"}
)
