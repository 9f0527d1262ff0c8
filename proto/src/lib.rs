//! The wire types and stored types of Covenant, generated from the .proto files, and their descriptor set.
//!
//! [`v1`] is what callers, operators and participants speak; [`ledger::v1`] is the demo participant's own
//! service; [`log::v1`] is what logs store. The .proto files beside this crate say what each field means, its
//! unit and its bound, and those sentences stand here too.
//!
//! Nothing here checks a bound: a value of these types is what somebody else wrote. `covenant-codec` turns it
//! into the types of `covenant-rules`, or says what is wrong with it.

/// All files with their imports as an encoded `google.protobuf.FileDescriptorSet`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The package `covenant.v1`: transactions, sessions, operators.
#[allow(
    missing_docs,
    clippy::all,
    reason = "generated: modules of oneofs and code of tonic carry no docs"
)]
pub mod v1 {
    tonic::include_proto!("covenant.v1");
}

/// The demo participant.
pub mod ledger {
    /// The package `covenant.ledger.v1`: operations of a branch, and accounts.
    #[allow(
        missing_docs,
        clippy::all,
        reason = "generated: modules of oneofs and code of tonic carry no docs"
    )]
    pub mod v1 {
        tonic::include_proto!("covenant.ledger.v1");
    }
}

/// What is stored.
pub mod log {
    /// The package `covenant.log.v1`: payloads of log records.
    #[allow(
        missing_docs,
        clippy::all,
        reason = "generated: modules of oneofs carry no docs"
    )]
    pub mod v1 {
        tonic::include_proto!("covenant.log.v1");
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    #[test]
    fn descriptor_set_holds_every_package_with_its_imports() {
        let set = prost_types::FileDescriptorSet::decode(super::FILE_DESCRIPTOR_SET).unwrap();
        let packages: std::collections::BTreeSet<_> = set.file.iter().map(|file| file.package()).collect();
        for package in [
            "covenant.v1",
            "covenant.ledger.v1",
            "covenant.log.v1",
            "google.protobuf",
        ] {
            assert!(
                packages.contains(package),
                "{package} is missing among {packages:?}"
            );
        }
    }
}
