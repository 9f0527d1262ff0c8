//! stub
/// stub
pub struct Coordinator;
