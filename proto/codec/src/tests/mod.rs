//! Properties of the codec. They show that bytes come back as what they were made of and that no bytes panic; that
//! two releases understand each other they cannot show.

mod bytes;
mod refusals;
mod round_trips;
mod values;
