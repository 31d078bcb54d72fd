//! Terraform's lock info, and where it is kept: in the metadata of a lease.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_view::holders::LockReport;

use crate::problem::{Kind, Problem};

/// The metadata fields of Terraform's lock info and of its id.
pub(crate) const INFO: &str = "terraform";
pub(crate) const ID: &str = "terraform_id";

/// The lock info in a request.
pub(crate) fn of_request(body: &[u8]) -> Result<Value, Problem> {
    let refuse = |cause: &str| {
        let detail = format!("the body is not Terraform's lock info: {cause}");
        Problem::new(Kind::INVALID, detail)
    };
    let info: Value = serde_json::from_slice(body).map_err(|error| refuse(&error.to_string()))?;
    match info["ID"].as_str() {
        Some(id) if !id.is_empty() => Ok(info),
        _ => Err(refuse("it has no `ID`")),
    }
}

/// The holder as Terraform's lock info; for another holder, as much of it as possible.
pub(crate) fn of_holder(holder: &LockReport) -> Value {
    let own = holder.meta.get(INFO);
    let own = own.and_then(|info| serde_json::from_str(info).ok());
    own.unwrap_or_else(|| {
        serde_json::json!({
            "ID": "", "Operation": "", "Info": "held by a client other than Terraform",
            "Who": holder.who, "Version": "", "Created": holder.since, "Path": holder.name,
        })
    })
}

/// Removes what others could unlock a Terraform state with.
pub(crate) fn hide_id(meta: &mut BTreeMap<String, String>) {
    if meta.remove(ID).is_none() {
        return;
    }
    let Some(info) = meta.remove(INFO) else {
        return;
    };
    if let Ok(Value::Object(mut info)) = serde_json::from_str(&info) {
        info.remove("ID");
        meta.insert(INFO.to_owned(), Value::Object(info).to_string());
    }
}
