package sigv4

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The query parameters of a request whose signature is in its address. (S3 API reference, "Authenticating Requests:
// Using Query Parameters".)
const (
	queryAlgorithm  = "X-Amz-Algorithm"
	queryCredential = "X-Amz-Credential"
	queryDate       = "X-Amz-Date"
	queryExpires    = "X-Amz-Expires"
	queryHeaders    = "X-Amz-SignedHeaders"
	querySignature  = "X-Amz-Signature"
	queryToken      = "X-Amz-Security-Token" //nolint:gosec // a name
)

// QueryParameters are those of a signature in the address, which no operation sees.
func QueryParameters() []string {
	return []string{queryAlgorithm, queryCredential, queryDate, queryExpires, queryHeaders, querySignature, queryToken}
}

// longest is for how long a signature in an address may count.
const longest = 7 * 24 * time.Hour

// presigned says that the signature is in the address.
func presigned(query url.Values) bool { return query.Has(queryAlgorithm) || query.Has(querySignature) }

func parametersError(format string, args ...any) error {
	return refuseS3(http.StatusBadRequest, "AuthorizationQueryParametersError", fmt.Sprintf(format, args...))
}

// parseQuery reads a signature from the query, which only S3 takes here.
func parseQuery(query url.Values) (a Authorization, err error) {
	for _, name := range QueryParameters() {
		if values := query[name]; len(values) > 1 || name != queryToken && (len(values) == 0 || values[0] == "") {
			return a, parametersError("Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.")
		}
	}
	if query.Get(queryAlgorithm) != Algorithm {
		return a, parametersError(`X-Amz-Algorithm only supports "AWS4-HMAC-SHA256"`)
	}
	a, err = ParseAuthorization(fmt.Sprintf("%s Credential=%s, SignedHeaders=%s, Signature=%s", Algorithm, query.Get(queryCredential), query.Get(queryHeaders), query.Get(querySignature)))
	if err != nil {
		return Authorization{}, parametersError("%v", err)
	}
	if a.Scope.Service != "s3" {
		return Authorization{}, refuseS3(http.StatusNotImplemented, "NotImplemented", "A signature in the address is known here for S3 only.")
	}
	return a, nil
}

// inTime judges when a signature in an address counts.
func inTime(query url.Values, at, now time.Time) error {
	n, err := strconv.Atoi(query.Get(queryExpires))
	switch {
	case err != nil:
		return parametersError("X-Amz-Expires should be a number")
	case n < 0:
		return parametersError("X-Amz-Expires must be non-negative")
	case time.Duration(n) > longest/time.Second:
		return parametersError("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds")
	case at.After(now.Add(S3Skew)):
		return refuseS3(http.StatusForbidden, "AccessDenied", "Request is not yet valid")
	case now.After(at.Add(time.Duration(n) * time.Second)):
		return refuseS3(http.StatusForbidden, "AccessDenied", "Request has expired")
	}
	return nil
}

// withoutSignature is a query as it was signed.
func withoutSignature(raw string) string {
	parts := strings.Split(raw, "&")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, querySignature+"=") }), "&")
}
