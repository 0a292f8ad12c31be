"""The published errors: *DSVM* is Chen et al. 2014, *MCF* is van der Maaten et al. 2013.

The numbers of MCF's figures are from the vector graphics of its PDF. The Amazon values are multiples of one over the
number of test documents, so they are exact. The numbers of DSVM's own curves (Figures 2 to 4) were not published.
"""

from __future__ import annotations

#: The loss of each model of the paper; see `dropmargin.losses`.
LOSSES = {
    "Dropout-SVM": "hinge",
    "Dropout-Logistic": "logistic",
    "MCF-Quadratic": "quadratic",
    "MCF-Logistic": "mcf-logistic",
    "MCF-Exponential": "exponential",
}

#: Models whose loss needs the moment generating function of the noise: a fit takes minutes instead of seconds.
THROUGH_MGF = ("MCF-Logistic", "MCF-Exponential")

#: Dropout rates of DSVM Figure 2 and MCF Figure 1.
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

#: MCF Figure 1: Amazon reviews, 20,000 features; one error per rate, the last one under Poisson noise.
AMAZON = {
    "books": {
        "MCF-Quadratic": (0.1745, 0.1662, 0.1579, 0.1530, 0.1465, 0.1440, 0.1395, 0.1380, 0.1409, 0.1310, 0.1545),
        "MCF-Exponential": (0.1700, 0.1557, 0.1545, 0.1505, 0.1454, 0.1449, 0.1407, 0.1395, 0.1344, 0.1330, 0.1456),
        "MCF-Logistic": (0.1720, 0.1485, 0.1422, 0.1384, 0.1371, 0.1353, 0.1353, 0.1326, 0.1384, 0.1321, 0.1404),
    },
    "kitchen": {
        "MCF-Quadratic": (0.1203, 0.1154, 0.1166, 0.1087, 0.1065, 0.1050, 0.1061, 0.1075, 0.1026, 0.1026, 0.1088),
        "MCF-Exponential": (0.1238, 0.1130, 0.1114, 0.1090, 0.1058, 0.1051, 0.1040, 0.1026, 0.1041, 0.1053, 0.1060),
        "MCF-Logistic": (0.1238, 0.1041, 0.1034, 0.1034, 0.1048, 0.1028, 0.1029, 0.1034, 0.1006, 0.1024, 0.1026),
    },
}

#: MCF Figure 3: quadratic loss on books, by the number of explicit copies; 0 is no corruption, infinity MCF.
COPIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
EXPLICIT_MCF = {
    0: 0.1799,
    1: 0.1811,
    2: 0.1655,
    4: 0.1611,
    8: 0.1519,
    16: 0.1536,
    32: 0.1453,
    64: 0.1484,
    128: 0.1449,
    256: 0.1443,
    float("inf"): 0.1377,
}

#: DSVM Table 2: CIFAR-10; no corruption, Poisson, dropout.
CIFAR10 = {
    "Dropout-SVM": (0.322, 0.309, 0.294),
    "Dropout-Logistic": (0.312, 0.302, 0.293),
    "MCF-Logistic": (0.325, 0.300, 0.294),
    "MCF-Quadratic": (0.326, 0.291, 0.323),
    "MCF-Exponential": (0.397, 0.395, 0.379),
}

#: DSVM Figure 4 and MCF Figure 4: MNIST by share of deleted pixels; ``None`` where the error exceeds the axis (.5).
DELETED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NIGHTMARE = {
    "hinge, l2": (0.0772, 0.0904, 0.0995, 0.1217, 0.1388, 0.1660, 0.2116, 0.2740, 0.3707, None),
    "hinge, FDROP": (0.0854, 0.0930, 0.0994, 0.1153, 0.1299, 0.1445, 0.1810, 0.2275, 0.2855, 0.438),
    "logistic, l2": (0.080, 0.128, 0.153, 0.181, 0.229, 0.306, 0.416, None, None, None),
    "MCF-Quadratic": (0.135, 0.139, 0.147, 0.158, 0.163, 0.179, 0.200, 0.230, 0.277, 0.389),
    "MCF-Exponential": (0.154, 0.164, 0.166, 0.178, 0.184, 0.198, 0.209, 0.238, 0.280, 0.379),
    "MCF-Logistic": (0.0758, 0.0808, 0.0882, 0.0978, 0.1070, 0.1191, 0.1428, 0.1893, 0.2389, 0.3734),
}


def papers_c(model: str, C: float) -> float:
    """Return the paper's ``c`` for our ``C``: the same for the hinge, twice as much for the logistic loss.

    The paper minimises ``|w|^2 + 2c * risk`` in its Eq. 1, but bounds ``|w|^2 + c * risk`` for the logistic loss. It
    does not define ``c`` for the MCF losses; Eq. 1 is used for them.
    """
    return 2.0 * C if model == "Dropout-Logistic" else C


#: Text for the settings in a report.
UNITS_OF_C = "scikit-learn's: the paper's c is C for the hinge loss (Dropout-SVM) and 2 C for Dropout-Logistic"
