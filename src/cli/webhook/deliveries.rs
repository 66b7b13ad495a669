//! `hookgate webhook deliveries`: what came and how it ended, read beside a running gateway.

use clap::Args;

use super::super::Context;
use super::super::output::{table, time};
use super::routes;
use crate::app::store_error;
use crate::config::Config;
use crate::error::UserError;
use crate::store::{DeliveryRow, SqlStore};
use crate::webhook::subscriptions::normal_name;

#[derive(Debug, Args)]
pub(in crate::cli) struct Deliveries {
    /// Only those of this route
    name: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: u32,
}

pub(super) async fn run(context: &Context, config: &Config, wanted: Deliveries) -> Result<u8, UserError> {
    let store = SqlStore::open_read_only(&config.home, &config.storage.url).await.map_err(|e| store_error(&e))?;
    let known = routes(config).await.names();
    let mut listed = store.deliveries(wanted.name.as_deref(), wanted.limit).await.map_err(|e| store_error(&e))?;
    if let Some(typed) = wanted.name.as_ref().filter(|_| listed.is_empty()) {
        let normal = normal_name(typed).unwrap_or_default();
        listed = store.deliveries(Some(&normal), wanted.limit).await.map_err(|e| store_error(&e))?;
        // A route that was removed still has its deliveries.
        if listed.is_empty() && ![typed, &normal].into_iter().any(|name| known.contains(name)) {
            return Err(UserError::failed(format!("There is no route {typed:?}; `hookgate webhook list` shows them.")));
        }
    }
    store.close().await;
    context.output.told(&listed, || if listed.is_empty() { "No deliveries yet.".into() } else { lines(&listed) });
    Ok(0)
}

fn lines(listed: &[DeliveryRow]) -> String {
    let row = |delivery: &DeliveryRow| {
        vec![
            time(delivery.received_at),
            delivery.route.clone(),
            delivery.state.clone(),
            delivery.event.clone(),
            delivery.target.clone(),
            delivery.delivery_id.clone(),
            delivery.error.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    table(&["TIME (UTC)", "ROUTE", "STATE", "EVENT", "TARGET", "DELIVERY", "ERROR"], &rows)
}
