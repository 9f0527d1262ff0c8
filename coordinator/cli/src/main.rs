//! The covenant command.

fn main() {}
