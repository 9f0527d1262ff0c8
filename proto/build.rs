//! Compiles every .proto file below `covenant/` without protoc, and stores their descriptor set for reflection.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use prost::Message;

/// Where the .proto files lie, relative to this crate; also the prefix of their import paths.
const PROTO_FOLDER: &str = "covenant";

fn main() -> Result<()> {
    // Cargo takes the youngest file below a folder that is named here.
    println!("cargo:rerun-if-changed={PROTO_FOLDER}");

    let mut files = Vec::new();
    collect_proto_files(Path::new(PROTO_FOLDER), &mut files)?;
    files.sort();

    let mut compiler = protox::Compiler::new(["."])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(&files)?;
    let mut descriptors = compiler.file_descriptor_set();

    // Operations pass from a socket to a resource: `Bytes` shares them instead of copying.
    tonic_prost_build::configure()
        .bytes(".covenant.v1")
        .compile_fds(descriptors.clone())?;

    // Comments are half of the descriptor set, and reflection shows none of them.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let out_dir = std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR for build scripts")?;
    let out_file = Path::new(&out_dir).join("descriptors.bin");
    std::fs::write(&out_file, descriptors.encode_to_vec())
        .with_context(|| format!("could not write {}", out_file.display()))
}

fn collect_proto_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect_proto_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
