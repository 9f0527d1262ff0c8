//! OperatorService: what operators see.

use covenant_proto::v1::operator_service_server::OperatorService;
use covenant_proto::v1::{
    GetFiguresRequest, GetFiguresResponse, ListParticipantsRequest, ListParticipantsResponse, LogFigures,
};
use tonic::{Request, Response, Status};

use super::{convert, page, status};
use crate::input::{Call, Handle};
use crate::listing::ParticipantQuery;

pub(crate) struct OperatorApi {
    handle: Handle,
}

impl OperatorApi {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

#[tonic::async_trait]
impl OperatorService for OperatorApi {
    async fn list_participants(
        &self,
        request: Request<ListParticipantsRequest>,
    ) -> Result<Response<ListParticipantsResponse>, Status> {
        let request = request.into_inner();
        let query = ParticipantQuery {
            page_size: page::size(request.page_size),
            after: page::decode_name(&request.page_token).map_err(status::refused)?,
        };
        let page = self
            .handle
            .call(|answer| Call::Participants { query, answer })
            .await;
        let page = page.map_err(status::refused)?;
        Ok(Response::new(ListParticipantsResponse {
            participants: page.rows.iter().map(convert::participant).collect(),
            next_page_token: page
                .next
                .map_or_else(String::new, |name| name.as_str().to_owned()),
        }))
    }
    async fn get_figures(
        &self,
        _request: Request<GetFiguresRequest>,
    ) -> Result<Response<GetFiguresResponse>, Status> {
        let figures = self.handle.call(|answer| Call::Figures { answer }).await;
        let figures = figures.map_err(status::refused)?;
        Ok(Response::new(GetFiguresResponse {
            log: Some(LogFigures {
                forces: figures.log.forces,
                records: figures.log.records,
                bytes: figures.log.bytes,
            }),
            messages_sent: figures.messages_sent,
            messages_received: figures.messages_received,
        }))
    }
}
