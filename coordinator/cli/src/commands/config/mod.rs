//! `covenant config`: the coordinator's configuration.

mod show;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;
use covenant_coordinator::Config;
use toml::Value;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::settings::{self, FlagValue, Settings};

/// The key of the log's place.
pub(crate) const DATA_DIR: &str = "data_dir";

/// What can be done with the configuration.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Print the configuration in force, and where each value came from.
    Show(show::Args),
}

pub(crate) fn run(verb: Verb) -> (Output, Result<Exit, Failure>) {
    match verb {
        Verb::Show(args) => (args.output.output(), show::run(&args)),
    }
}

/// Where the configuration of a coordinator comes from.
#[derive(clap::Args, Clone)]
pub(crate) struct ConfigArgs {
    /// A TOML file with any of the keys that `covenant config show` lists; the environment and flags override it.
    #[arg(long, value_name = "FILE", env = "COVENANT_CONFIG")]
    config: Option<PathBuf>,
    /// The directory of the log; made if there is none. It must be on a disk (not tmpfs). Default: covenant-data in
    /// the present directory.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The coordinator's name in logs. Default: c1.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The address to listen on; port 0 takes a free one and says which in the ready line. Default: 127.0.0.1:7400.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

impl ConfigArgs {
    /// The configuration in force, within its bounds.
    pub(crate) fn load(&self) -> Result<Settings<Config>, Failure> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let settings = settings::load::<Config>(self.config.as_deref(), variables, self.flags()?)
            .map_err(|error| Failure::usage("CONFIG", error.to_string()))?;
        match settings.config.validate() {
            Ok(()) => Ok(settings),
            Err(error) => {
                let origin = settings
                    .origins
                    .get(error.key)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                Err(Failure::usage("CONFIG", format!("{error} (from: {origin})")))
            }
        }
    }

    fn flags(&self) -> Result<Vec<FlagValue>, Failure> {
        let mut flags = Vec::new();
        let mut set = |key, flag, value: String| {
            flags.push(FlagValue {
                key,
                flag,
                value: Value::from(value),
            })
        };
        if let Some(directory) = &self.data_dir {
            let text = directory.to_str().ok_or_else(|| {
                let why = format!(
                    "--data-dir {} is not UTF-8; give a path that is",
                    directory.display()
                );
                Failure::usage("CONFIG", why)
            })?;
            set(DATA_DIR, "--data-dir", text.to_owned());
        }
        if let Some(name) = &self.name {
            set("name", "--name", name.clone());
        }
        if let Some(listen) = self.listen {
            set("listen", "--listen", listen.to_string());
        }
        Ok(flags)
    }
}
