//! The participant SDK: a Resource, and the driver that joins it to a coordinator.
