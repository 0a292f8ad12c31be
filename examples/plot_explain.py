"""
What a label leans on
=====================

`explain` tells by how much a prediction changes if a feature vanishes, and after how many the label flips.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dropmargin import DropoutSVC, explain

wine = load_wine(as_frame=True)
labels = wine.target_names[wine.target]
X_train, X_test, y_train, y_test = train_test_split(wine.data, labels, random_state=0)
model = make_pipeline(StandardScaler(), DropoutSVC(noise=0.1, missing="rescale")).fit(X_train, y_train)
explanation = explain(model, X_test)
print(explanation[7])
explanation.plot(7)
plt.show()
