//! stub
/// stub
pub struct Participant;
