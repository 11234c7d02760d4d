"""headrace streams training data onto the accelerator."""
