"""
Error along the noise
=====================

`DropoutSVCCV` searches dropout rates and values of ``C`` together by cross-validation. Its display shows
the best score for each rate. Half of the pixels will be missing at prediction,
so ``target_noise=0.5`` scores each held-out image by the share of its copies with half of the pixels whose label is
right. (Without it the search finds that complete images need no noise.)
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from dropmargin import DropoutLogisticRegressionCV, NoisePathDisplay

X, y = load_digits(return_X_y=True)
model = DropoutLogisticRegressionCV(
    noises=[0.0, 0.05, 0.1, 0.2, 0.4, 0.6], Cs=[0.1, 1.0, 10.0, 100.0], cv=3, target_noise=0.5, missing="rescale"
).fit(X / 16, y)
print(model.noise_, model.C_, round(model.best_score_, 3))

# %%
NoisePathDisplay.from_estimators({"DropoutLogisticRegression": model})
plt.show()
