"""model.loss = "huber": as mse, but of outliers no more than their distance counts."""

from edgeflock.shared.model.losses import Loss

HUBER = Loss("torch.nn.functional:huber_loss")
