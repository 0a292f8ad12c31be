"""
The paper's Figure 2
====================

The error of *Dropout Training for Support Vector Machines* (Chen, Zhu, Chen, Zhang, AAAI 2014) against the dropout
rate, on Amazon reviews. The measurements are those of ``python -m reproduction amazon``, which
``results/amazon.jsonl`` stores; the experiment itself takes minutes and needs the reviews.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

# %%
# A measurement per line; a line without a key describes the run.
folder = next(path for path in [Path.cwd(), *Path.cwd().parents] if (path / "results" / "amazon.jsonl").exists())
with open(folder / "results" / "amazon.jsonl", encoding="utf-8") as file:
    measured = [row for row in map(json.loads, file) if "key" in row]

fig, axes = plt.subplots(1, 2, figsize=(7, 3.4), sharey=False, layout="constrained")
for ax, domain in zip(axes, ["books", "kitchen"], strict=True):
    for model in ["Dropout-SVM", "Dropout-Logistic", "MCF-Quadratic", "MCF-Logistic"]:
        points = [
            (row["key"]["noise"], row["result"]["error"])
            for row in measured
            if row["key"]["form"] == "amazon20k"
            and row["key"]["domain"] == domain
            and row["key"]["model"].lower() == model.lower()
            and isinstance(row["key"]["noise"], float)
        ]
        ax.plot(*zip(*sorted(points), strict=True), "o-", label=model)
    ax.set(title=domain, xlabel="dropout rate", ylabel="test error")
axes[0].legend()
plt.show()
