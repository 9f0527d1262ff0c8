//! A caller of the coordinator: the same id in every retry, UNKNOWN as a type of its own.
