//! The wire types of Covenant, generated from the .proto files, and their descriptor set.
