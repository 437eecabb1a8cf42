"""Markdown tables of medians and ratios."""

import statistics


def median(values):
    return statistics.median(values)


def tenth(values):
    return sorted(values)[len(values) // 10]


def ratio(value, yardstick):
    return f"{value / yardstick:.2f}" if yardstick else "-"


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] + ["---:"] * (len(head) - 1)) + " |"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
