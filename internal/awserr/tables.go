package awserr

import (
	"slices"
	"strings"
)

// ofKnown classifies by the codes that say it all, or returns None. Sources: the error types of the
// SDK's services (ecs, sqs, secretsmanager, sts, lambda, dynamodb) and the pages "Common errors" of
// their API references. The codes of a status 5xx say no more than the status: Lost.
func ofKnown(code string) Class {
	switch code {
	case "Throttling", "ThrottlingException", "ThrottledException", "ThrottlingError", "RequestThrottled",
		"RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded",
		"ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "SlowDown", "EC2ThrottledException",
		"KmsThrottled", "KMSThrottled", "OverLimit":
		return Throttled
	case "LimitExceededException", "LimitExceeded", "ServiceQuotaExceededException", "AttributeLimitExceededException",
		"VcpuLimitExceeded":
		return Quota
	case "InsufficientCapacityException", "InsufficientInstanceCapacity", "InsufficientFreeAddressesInSubnet":
		return Capacity
	case "InternalError", "InternalErrorException", "InternalFailure", "InternalServerError", "InternalServerException",
		"InternalServiceError", "InternalServiceErrorException", "ServerException", "ServiceException",
		"ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException",
		"TransactionInProgressException": // an earlier try under the same token may yet be done
		return Lost
	case "ConflictException":
		return Conflict
	case "TransactionConflictException", "ReplicatedWriteConflictException",
		"ResourceInUseException", "PurgeQueueInProgress", "UpdateInProgressException", "ResourceConflictException":
		return Busy
	case "ConditionalCheckFailedException":
		return LostRace
	case "ResourceNotFoundException", "QueueDoesNotExist", "NonExistentQueue", "ClusterNotFoundException",
		"ServiceNotFoundException", "TargetNotFoundException", "NoSuchEntity", "NotFoundException":
		return NotFound
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "AuthFailure", "OptInRequired",
		"BlockedException", "KmsAccessDenied", "KMSAccessDeniedException":
		return Denied
	}
	if slices.Contains(credentialCodes, code) {
		return Denied
	}
	return None
}

// credentialCodes are those of a denial that is about the caller's credentials.
var credentialCodes = []string{
	"ExpiredToken", "ExpiredTokenException", "RequestExpired", "UnrecognizedClientException", "InvalidClientTokenId",
	"InvalidAccessKeyId", "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature",
	"IncompleteSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
}

// wraps reports whether the code is one under which ECS passes on the refusal of another service, so that only the
// text identifies it.
func wraps(code string) bool {
	return slices.Contains([]string{"InvalidParameterException", "ClientException", "InvalidRequestException", "ServiceFailure"}, code)
}

// texts are looked for in their order, in lower case. The first group are the texts of ECS when the EC2 or Fargate
// calls behind it were throttled: "Rate exceeded (Service: AmazonEC2; ... ErrorCode: Throttling)".
var texts = []struct {
	part  string
	class Class
}{
	{"rate exceeded", Throttled},
	{"errorcode: throttling", Throttled},
	{"error code: throttling", Throttled},
	{"request limit exceeded", Throttled},
	{"requestlimitexceeded", Throttled},
	{"too many concurrent attempts", Throttled},
	{"too many requests", Throttled},
	{"throttlingexception", Throttled},

	{"you've reached the limit on the number of", Quota}, // vCPUs, or tasks, that you can run concurrently
	{"you’ve reached the limit on the number of", Quota},
	{"vcpu limit", Quota},
	{"limit exceeded", Quota},
	{"limitexceeded", Quota},
	{"exceeds your quota", Quota},
	{"exceed your quota", Quota},
	{"quota exceeded", Quota},
	{"service quota", Quota},

	{"capacity is unavailable at this time", Capacity},
	{"insufficient capacity", Capacity},
	{"no capacity", Capacity},
	{"capacity isn't available", Capacity},
	{"capacity is not available", Capacity},
	{"insufficient free addresses", Capacity},
	{"insufficientfreeaddressesinsubnet", Capacity},
	{"not enough free addresses", Capacity},
	{"does not have enough free", Capacity},
	{"insufficientinstancecapacity", Capacity},

	{"not authorized to perform", Denied},
	{"unable to assume the role", Denied},
	{"unable to assume the service linked role", Denied},

	{"the referenced task was not found", NotFound},
	{"the referenced cluster was", NotFound}, // not found; inactive
	{"taskdefinition not found", NotFound},
	{"task definition not found", NotFound},
	{"unable to describe task definition", NotFound},

	{"service unavailable", Unavailable},
	{"try again later", Unavailable},
}

// ofText classifies by the text, or returns None.
func ofText(text string) Class {
	text = strings.ToLower(text)
	for _, t := range texts {
		if strings.Contains(text, t.part) {
			return t.class
		}
	}
	return None
}
