"""The colours of methods, in the order in which methods appear.

They are those of Okabe and Ito, which colour-blind readers can distinguish, adapted to a light and a dark background.
"""

ON_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b5588f", "#3d3d3d", "#c98a00", "#4aa8e0")
ON_DARK = ("#3f9fe0", "#f07a28", "#2cc79a", "#e09bc4", "#d8d8d8", "#e6b422", "#8fd0f7")
