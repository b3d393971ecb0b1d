package identity

// PipelineOf reads the claims of a pipeline's token.
var PipelineOf = pipelineOf
