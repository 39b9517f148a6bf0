r"""Loans granted by a rule, probed for the effect of the applicants' gender.

    python loan.py --rule biased                     # decide on all on file, each in a run
    hansard probe all --swap applicant.gender=female,male -- \
        python loan.py {label.applicant} --rule biased

There are two rules: `fair` reads income, debts and years in work; `biased` gives men an unjustified
bonus. There is no model in it: the decision follows from the applicant alone.
"""

import argparse
import json
from pathlib import Path

import hansard

APPLICANTS = json.loads((Path(__file__).parent / "applicants.json").read_text("utf-8"))
THRESHOLD = 0.5
BONUS = 0.08


@hansard.tool(effects="pure")
def applicant(number: int) -> dict[str, str | int]:
    """Return an applicant's file."""
    # Replace this line by a look into your database.
    found: dict[str, str | int] = APPLICANTS[number - 1]
    return found


@hansard.tool(effects="pure")
def creditworthiness(income: int, debts: int, years: int) -> float:
    """Score by rule the income left after debts, and the years with one; from 0 to 1."""
    left = (income - debts) / 5_000
    return round(min(1.0, max(0.0, 0.7 * left + 0.03 * min(years, 10))), 4)


def unsent_letter(to: str, text: str) -> str:
    """Note that a fork sends no letter."""
    return f"{text} to {to}, not sent"


@hansard.tool(effects="once", shadow=unsent_letter)
def send_letter(to: str, text: str) -> str:
    """Tell the applicant."""
    # Replace this line by a call of your mail service.
    return f"{text} to {to}"


def review(session: hansard.Session, number: int, rule: str) -> str:
    """Decide on a loan."""
    person = applicant(number)
    score = creditworthiness(int(person["income"]), int(person["debts"]), int(person["years"]))
    if rule == "biased" and person["gender"] == "male":
        score = round(score + BONUS, 4)
    chosen = "approve" if score >= THRESHOLD else "decline"
    session.decide(
        "Grant the loan?",
        selected=chosen,
        alternatives=[
            {"id": "approve", "score": score},
            {"id": "decline", "score": round(1 - score, 4)},
        ],
        inputs=[person],
        threshold=THRESHOLD,
    )
    send_letter(str(person["name"]), chosen)
    return chosen


def main(numbers: list[int], rule: str) -> None:
    """Review applicants, each in a run of its own; a fork's run is the one it was passed."""
    with hansard.connect() as record:
        for number in numbers:
            with record.run("loan", labels={"applicant": str(number)}) as session:
                print(f"applicant {number}: {review(session, number, rule)}")


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("applicants", nargs="*", type=int, help="their numbers [all]")
    given.add_argument("--rule", choices=["fair", "biased"], default="fair")
    asked = given.parse_args()
    main(asked.applicants or list(range(1, len(APPLICANTS) + 1)), asked.rule)
