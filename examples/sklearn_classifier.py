"""Handwritten digits by a scikit-learn pipeline: which digits are taken for which, and which method is best.

pip install 'adaptive-labels[sklearn]'
python examples/sklearn_classifier.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from adaptive_labels.adapters.sklearn import AdaptiveLabelClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)

pipeline = make_pipeline(StandardScaler(), AdaptiveLabelClassifier(random_state=0, max_iter=30))
pipeline.fit(X_train, y_train)
print(f"accuracy on {len(y_test)} test images: {pipeline.score(X_test, y_test):.3f}")

for label, taken_for, probability in pipeline[-1].confusions_[:5]:
    print(f"{label} is taken for {taken_for}: {probability:.0%} of what {label} gives to other digits")

grid = {"adaptivelabelclassifier__method": ["baseline", "slr", "alr", "alr-s"]}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
for parameters, accuracy in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{parameters['adaptivelabelclassifier__method']:10}{accuracy:.3f} in cross-validation")
