//! The log of a server: on stderr, as text for people or one JSON object per line for programs.
//!
//! `COVENANT_LOG` filters it in the manner of `tracing` (`info`, `debug`, `covenant_coordinator=debug,info`). Commands that
//! only call a server have no log.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// The variable that filters the log.
pub(crate) const FILTER_VARIABLE: &str = "COVENANT_LOG";

/// What is logged if that variable is not set.
const DEFAULT_FILTER: &str = "info";

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Options of the log.
#[derive(Args, Clone, Copy)]
pub(crate) struct LogArgs {
    /// How to write the log on stderr; COVENANT_LOG filters it (error, warn, info, debug, or MODULE=LEVEL,...; default info).
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        env = "COVENANT_LOG_FORMAT"
    )]
    log_format: LogFormat,
}

impl LogArgs {
    /// Starts logging.
    pub(crate) fn start(self) -> Result<(), Failure> {
        let filter = match std::env::var(FILTER_VARIABLE) {
            Ok(filter) => EnvFilter::try_new(&filter).map_err(|error| {
                let way = "give error, warn, info, debug, or MODULE=LEVEL,...";
                Failure::usage(
                    "CONFIG",
                    format!("{FILTER_VARIABLE} is '{filter}': {error}; {way}"),
                )
            })?,
            Err(_) => EnvFilter::new(DEFAULT_FILTER),
        };
        let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let started = match self.log_format {
            LogFormat::Text => subscriber.with_ansi(colours).try_init(),
            LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
        };
        started.map_err(|error| Failure::internal("LOG", format!("the log did not start: {error}")))
    }
}
