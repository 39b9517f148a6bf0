"""A product for a customer, chosen by what fifty customers who like the same think of each.

    python recommend.py CUSTOMER

What the choice was made from is on record with it: `hansard why` tells it, each line with the event
that it comes from.
"""

import argparse

import hansard

PRODUCTS = {"X": "a season ticket", "Y": "a box of records", "Z": "a pair of headphones"}
PROFILES = 50
THRESHOLD = 0.85
"""Lowest rating of a recommendation."""


@hansard.tool(effects="pure")
def read_profile(customer: str) -> dict[str, object]:
    """Return a customer's profile."""
    # Replace this line by a look into your database.
    return {"customer": customer, **taste_of(customer)}


@hansard.tool(effects="pure")
def like_minded(preference: str, most: int) -> list[str]:
    """Return customers with the same preference."""
    # Replace this line by a query.
    return customers_who_prefer(preference)[:most]


@hansard.tool(effects="pure", kind="model")
def rate(product: str, profiles: list[dict[str, object]]) -> float:
    """Rate how well a product suits these like-minded customers: 0 to 1."""
    # Replace this line by a call of your model.
    return mean_rating(product, profiles)


def recommend(session: hansard.Session, customer: str) -> str:
    """Return the product for a customer, or none that is good enough."""
    mine = read_profile(customer)
    others = [read_profile(other) for other in like_minded(str(mine["prefers"]), most=PROFILES)]
    scores = {product: rate(product, others) for product in PRODUCTS}
    best = max(scores, key=lambda product: scores[product])
    passes = scores[best] > THRESHOLD
    session.decide(
        f"Which product for {customer}?",
        selected=best if passes else "none",
        alternatives=[
            {"id": product, "score": score, "reason": PRODUCTS[product]}
            for product, score in scores.items()
        ],
        inputs=[mine, *others, *scores.values()],
        threshold=THRESHOLD,
        reason=f"{len(others)} customers who prefer {mine['prefers']} rate it best",
    )
    return f"Product {best}, {PRODUCTS[best]}" if passes else "no product"


def main(customer: str) -> None:
    """Recommend, and say how to see why."""
    with (
        hansard.connect() as record,
        record.run("recommend", run=f"for-{customer}", agent="adviser", role="adviser") as session,
    ):
        print(f"{customer} is recommended {recommend(session, customer)}")


# Replacements of a database and a model, so that this runs anywhere.


def customers_who_prefer(preference: str) -> list[str]:
    """All of a database of a hundred customers."""
    every = [f"customer-{number}" for number in range(101, 201)]
    return [customer for customer in every if taste_of(customer)["prefers"] == preference]


def taste_of(customer: str) -> dict[str, object]:
    """Return by rule a taste: the first 150 like jazz; of fifty in a row 46 love X, 39 love Y, 40
    love Z.
    """
    number = int(customer.rpartition("-")[2])
    place = (number - 101) % 50
    return {
        "prefers": "jazz" if number <= 150 else "blues",
        "ratings": {
            "X": 1.0 if place < 46 else 0.0,
            "Y": 1.0 if place < 39 else 0.0,
            "Z": 1.0 if place < 40 else 0.5 if place == 40 else 0.0,
        },
    }


def mean_rating(product: str, profiles: list[dict[str, object]]) -> float:
    """Return the mean rating of a product in the profiles."""
    ratings = [profile["ratings"] for profile in profiles]
    found = [float(each[product]) for each in ratings if isinstance(each, dict)]
    return round(sum(found) / len(found), 4)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("customer", help="such as customer-7")
    main(given.parse_args().customer)
