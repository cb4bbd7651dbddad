"""What the scripts in this folder share: data, augmentation, the training loop, checkpoints and reports."""
