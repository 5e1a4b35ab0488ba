"""model.loss = "smooth": as mse, but of outliers no more than their distance counts."""

from edgeflock.shared.model.losses import Loss

SMOOTH = Loss("torch.nn.functional:smooth_l1_loss")
