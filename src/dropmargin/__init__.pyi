from dropmargin.estimators import (
    DropoutLogisticRegression as DropoutLogisticRegression,
)
from dropmargin.estimators import (
    DropoutRidge as DropoutRidge,
)
from dropmargin.estimators import (
    DropoutSVC as DropoutSVC,
)
from dropmargin.estimators import (
    DropoutSVR as DropoutSVR,
)
from dropmargin.estimators import (
    MCFClassifier as MCFClassifier,
)
from dropmargin.estimators import (
    NoisyLinearClassifier as NoisyLinearClassifier,
)
from dropmargin.estimators import (
    NoisyLinearRegressor as NoisyLinearRegressor,
)
from dropmargin.evaluation import (
    DeletionCurveDisplay as DeletionCurveDisplay,
)
from dropmargin.evaluation import (
    corruption_curve as corruption_curve,
)
from dropmargin.evaluation import (
    deletion_curve as deletion_curve,
)
from dropmargin.evaluation import (
    explain as explain,
)
from dropmargin.evaluation import (
    top_features as top_features,
)
from dropmargin.io.model import (
    load as load,
)
from dropmargin.io.model import (
    save as save,
)
from dropmargin.model_selection import (
    DropoutLogisticRegressionCV as DropoutLogisticRegressionCV,
)
from dropmargin.model_selection import (
    DropoutRidgeCV as DropoutRidgeCV,
)
from dropmargin.model_selection import (
    DropoutSVCCV as DropoutSVCCV,
)
from dropmargin.model_selection import (
    DropoutSVRCV as DropoutSVRCV,
)
from dropmargin.model_selection import (
    NoisyLinearClassifierCV as NoisyLinearClassifierCV,
)
from dropmargin.model_selection import (
    noise_path as noise_path,
)
from dropmargin.noise import (
    DropoutNoise as DropoutNoise,
)
from dropmargin.noise import (
    GaussianNoise as GaussianNoise,
)
from dropmargin.noise import (
    LaplaceNoise as LaplaceNoise,
)
from dropmargin.noise import (
    NoiseTransformer as NoiseTransformer,
)
from dropmargin.noise import (
    PoissonNoise as PoissonNoise,
)
from dropmargin.noise import (
    estimate_dropout_rates as estimate_dropout_rates,
)
from dropmargin.plotting import (
    NoiseGridDisplay as NoiseGridDisplay,
)
from dropmargin.plotting import (
    NoisePathDisplay as NoisePathDisplay,
)
from dropmargin.tables import (
    FourierFeatures as FourierFeatures,
)
from dropmargin.tables import (
    TableClassifier as TableClassifier,
)
from dropmargin.tables import (
    TableRegressor as TableRegressor,
)
from dropmargin.versions import (
    show_versions as show_versions,
)

__version__: str
