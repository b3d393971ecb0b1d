package awserr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	ecstypes "github.com/aws/aws-sdk-go-v2/service/ecs/types"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/dayfly-dev/dayfly/internal/awserr"
)

// generic is an error as the SDK makes it of a code that it has no type for.
func generic(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

// answered wraps err as the SDK does with what an HTTP answer said.
func answered(status int, err error) error {
	return &smithy.OperationError{ServiceID: "ECS", OperationName: "RunTask", Err: &awshttp.ResponseError{
		RequestID: "r-1",
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err,
		},
	}}
}

// unsent wraps err as the SDK does when its HTTP client fails.
func unsent(err error) error {
	return &smithy.OperationError{ServiceID: "ECS", OperationName: "RunTask", Err: &smithyhttp.RequestSendError{Err: err}}
}

func TestOf(t *testing.T) {
	const (
		vcpu     = "You've reached the limit on the number of vCPUs you can run concurrently"
		wrapped  = "Error creating network interface: Rate exceeded (Service: AmazonEC2; Status Code: 503; ErrorCode: Throttling; Request ID: x)"
		capacity = "Capacity is unavailable at this time. Please try again later or in a different availability zone"
	)
	timeout := &url.Error{Op: "Post", URL: "https://ecs", Err: context.DeadlineExceeded}
	reset := &url.Error{Op: "Post", URL: "https://ecs", Err: &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}}
	refused := &url.Error{Op: "Post", URL: "https://ecs", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	unknownHost := &url.Error{Op: "Post", URL: "https://ecs", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}}

	for name, tc := range map[string]struct {
		err  error
		want awserr.Class
	}{
		"nothing": {nil, awserr.None},

		"ThrottlingException":                    {answered(400, generic("ThrottlingException", "Rate exceeded")), awserr.Throttled},
		"Throttling":                             {answered(400, generic("Throttling", "Rate exceeded")), awserr.Throttled},
		"TooManyRequestsException":               {answered(429, generic("TooManyRequestsException", "Rate Exceeded.")), awserr.Throttled},
		"RequestLimitExceeded":                   {answered(503, generic("RequestLimitExceeded", "")), awserr.Throttled},
		"ProvisionedThroughputExceededException": {answered(400, &ddb.ProvisionedThroughputExceededException{}), awserr.Throttled},
		"a throttle of SQS":                      {answered(400, generic("AWS.SimpleQueueService.RequestThrottled", "")), awserr.Throttled},
		"a throttle nobody has heard of":         {answered(400, generic("ThrottlingOfEverything", "")), awserr.Throttled},
		"status 429 alone":                       {answered(429, errors.New("slow down")), awserr.Throttled},
		"wrapped, as ECS does it":                {answered(400, &ecstypes.InvalidParameterException{Message: aws.String(wrapped)}), awserr.Throttled},
		"wrapped in ClientException":             {answered(400, &ecstypes.ClientException{Message: aws.String("Rate exceeded (ErrorCode: Throttling)")}), awserr.Throttled},
		"wrapped, of EC2":                        {answered(400, &ecstypes.ClientException{Message: aws.String("Request limit exceeded. (Service: AmazonEC2; Error Code: RequestLimitExceeded)")}), awserr.Throttled},

		"capacity":                 {answered(400, &ecstypes.ClientException{Message: aws.String(capacity)}), awserr.Capacity},
		"capacity, as a parameter": {answered(400, &ecstypes.InvalidParameterException{Message: aws.String(capacity)}), awserr.Capacity},
		"addresses of a subnet":    {answered(400, &ecstypes.InvalidParameterException{Message: aws.String("subnet-1 has insufficient free addresses")}), awserr.Capacity},

		"vCPUs":                     {answered(400, &ecstypes.ClientException{Message: aws.String(vcpu)}), awserr.Quota},
		"vCPUs, as a parameter":     {answered(400, &ecstypes.InvalidParameterException{Message: aws.String(vcpu)}), awserr.Quota},
		"vCPUs, as a throttle":      {answered(400, generic("ThrottlingException", vcpu)), awserr.Quota},
		"capacity, as a throttle":   {answered(400, generic("ThrottlingException", capacity)), awserr.Capacity},
		"a limit of the rate":       {answered(400, generic("ThrottlingException", "Rate limit exceeded")), awserr.Throttled},
		"LimitExceededException":    {answered(400, &ecstypes.LimitExceededException{Message: aws.String("tasks")}), awserr.Quota},
		"ServiceQuotaExceeded":      {answered(402, generic("ServiceQuotaExceededException", "")), awserr.Quota},
		"capacity behind the quota": {answered(400, &ecstypes.ClientException{Message: aws.String(vcpu + ". " + capacity)}), awserr.Quota},

		"ServerException":                 {answered(500, &ecstypes.ServerException{}), awserr.Lost},
		"status 500 alone":                {answered(500, errors.New("boom")), awserr.Lost},
		"status 502 of a gateway":         {answered(502, generic("UnknownError", "<html>")), awserr.Lost},
		"status 503":                      {answered(503, generic("ServiceUnavailable", "")), awserr.Lost},
		"a fault of the server":           {&smithy.GenericAPIError{Code: "Odd", Fault: smithy.FaultServer}, awserr.Lost},
		"time-out":                        {unsent(timeout), awserr.Lost},
		"deadline of the context":         {&smithy.OperationError{Err: &smithy.CanceledError{Err: context.DeadlineExceeded}}, awserr.Lost},
		"context cancelled":               {&smithy.OperationError{Err: &smithy.CanceledError{Err: context.Canceled}}, awserr.Lost},
		"reset":                           {unsent(reset), awserr.Lost},
		"EOF":                             {unsent(&url.Error{Op: "Post", URL: "https://ecs", Err: io.EOF}), awserr.Lost},
		"cut short":                       {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), awserr.Lost},
		"an answer that is not an answer": {answered(200, &smithy.DeserializationError{Err: errors.New("invalid character '<'")}), awserr.Lost},
		"a connection error":              {unsent(errors.New("http2: server sent GOAWAY")), awserr.Lost},

		"nobody listens":  {unsent(refused), awserr.Unavailable},
		"no such host":    {unsent(unknownHost), awserr.Unavailable},
		"not sent at all": {&smithy.OperationError{Err: &smithy.SerializationError{Err: errors.New("x")}}, awserr.Permanent},
		"invalid input":   {&smithy.OperationError{Err: smithy.InvalidParamsError{Context: "RunTaskInput"}}, awserr.Permanent},

		"AccessDeniedException":      {answered(400, &ecstypes.AccessDeniedException{}), awserr.Denied},
		"expired":                    {answered(400, generic("ExpiredTokenException", "")), awserr.Denied},
		"unknown key":                {answered(403, generic("UnrecognizedClientException", "")), awserr.Denied},
		"signature":                  {answered(403, generic("SignatureDoesNotMatch", "")), awserr.Denied},
		"status 403 alone":           {answered(403, errors.New("forbidden")), awserr.Denied},
		"PassRole":                   {answered(400, &ecstypes.ClientException{Message: aws.String("User: arn:x is not authorized to perform: iam:PassRole on resource: y")}), awserr.Denied},
		"a role that is not assumed": {answered(400, &ecstypes.ClientException{Message: aws.String("ECS was unable to assume the role 'arn:x' that was provided for this task.")}), awserr.Denied},
		"no credentials":             {&smithy.OperationError{Err: errors.New("get identity: get credentials: none")}, awserr.Denied},

		"ConflictException":            {answered(400, &ecstypes.ConflictException{ResourceIds: []string{"arn"}}), awserr.Conflict},
		"TransactionConflictException": {answered(400, &ddb.TransactionConflictException{}), awserr.Busy},
		"transaction in progress":      {answered(400, &ddb.TransactionInProgressException{}), awserr.Lost},
		"ConditionalCheckFailed":       {answered(400, &ddb.ConditionalCheckFailedException{}), awserr.LostRace},
		"cancelled: a condition": {answered(400, &ddb.TransactionCanceledException{Message: aws.String(
			"Transaction cancelled, please refer cancellation reasons for specific reasons [None, ConditionalCheckFailed]")}), awserr.LostRace},
		"cancelled: a conflict": {answered(400, &ddb.TransactionCanceledException{Message: aws.String(
			"Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]")}), awserr.Busy},
		"cancelled: nobody says why": {answered(400, &ddb.TransactionCanceledException{}), awserr.Busy},

		"ResourceNotFoundException":  {answered(400, &ddb.ResourceNotFoundException{}), awserr.NotFound},
		"QueueDoesNotExist":          {answered(400, &sqstypes.QueueDoesNotExist{}), awserr.NotFound},
		"the old name of that":       {answered(400, generic("AWS.SimpleQueueService.NonExistentQueue", "")), awserr.NotFound},
		"ClusterNotFoundException":   {answered(400, &ecstypes.ClusterNotFoundException{}), awserr.NotFound},
		"a task that is not there":   {answered(400, &ecstypes.InvalidParameterException{Message: aws.String("The referenced task was not found.")}), awserr.NotFound},
		"a task definition likewise": {answered(400, &ecstypes.ClientException{Message: aws.String("TaskDefinition not found.")}), awserr.NotFound},

		"a parameter": {answered(400, &ecstypes.InvalidParameterException{Message: aws.String("Invalid CPU or memory value specified")}), awserr.Permanent},
		"validation":  {answered(400, generic("com.amazon.coral.validate#ValidationException", "1 validation error")), awserr.Permanent},
		"unknown":     {errors.New("something of our own"), awserr.Permanent},
	} {
		if got := awserr.Of(tc.err); got != tc.want {
			t.Errorf("%s: got %q, want %q, of: %v", name, got, tc.want, tc.err)
		}
	}
}

func TestOf_ReadsWhatTheSDKReallyMakesOfAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   awserr.Class
	}{
		"throttled": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"ThrottlingException","message":"Rate exceeded"}`)
		}, awserr.Throttled},
		"wrapped": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"com.amazonaws.ecs#InvalidParameterException","message":"Rate exceeded (ErrorCode: Throttling)"}`)
		}, awserr.Throttled},
		"conflict": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"ConflictException","message":"m","resourceIds":["arn:1"]}`)
		}, awserr.Conflict},
		"status 500": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"__type":"ServerException"}`)
		}, awserr.Lost},
		"a page of a proxy": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `<html>bad gateway</html>`)
		}, awserr.Lost},
		"a page of a proxy that says 200": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `<html>sign in</html>`)
		}, awserr.Lost},
		"broken off": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, awserr.Lost},
		"silence":    {nil, awserr.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tc.answer == nil && calls.Add(1) == 1 {
					w.Header().Set("Content-Type", "application/x-amz-json-1.1")
					_, _ = io.WriteString(w, "{}")
					return
				}
				if tc.answer == nil {
					<-release
					return
				}
				w.Header().Set("Content-Type", "application/x-amz-json-1.1")
				tc.answer(w)
			}))
			defer server.Close()
			defer close(release)
			ctx, asked := t.Context(), client(server.URL)
			if tc.answer == nil {
				// The time that is over is to be that of the answer, not that of a connection: one is there.
				if _, err := asked.ListTasks(ctx, &ecs.ListTasksInput{}); err != nil {
					t.Fatal(err)
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			_, err := asked.ListTasks(ctx, &ecs.ListTasksInput{})
			if got := awserr.Of(err); got != tc.want {
				t.Errorf("got %q, want %q, of: %v", got, tc.want, err)
			}
		})
	}
}

func TestOf_WhatNeverReachedTheServiceWasNotDone(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // nobody listens there now
	_, err := client(server.URL).ListTasks(t.Context(), &ecs.ListTasksInput{})
	if got := awserr.Of(err); got != awserr.Unavailable {
		t.Errorf("got %q, want unavailable, of: %v", got, err)
	}
}

func client(endpoint string) *ecs.Client {
	return ecs.New(ecs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "none"}, nil
		}),
	})
}

func TestOfReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		reasons []string
		want    awserr.Class
	}{
		"a condition":                 {[]string{"None", "ConditionalCheckFailed", ""}, awserr.LostRace},
		"a conflict":                  {[]string{"TransactionConflict", "None"}, awserr.Busy},
		"a condition and a conflict":  {[]string{"TransactionConflict", "ConditionalCheckFailed"}, awserr.LostRace},
		"a throttle":                  {[]string{"None", "ThrottlingError"}, awserr.Throttled},
		"throughput":                  {[]string{"ProvisionedThroughputExceeded"}, awserr.Throttled},
		"an invalid item":             {[]string{"TransactionConflict", "ValidationError"}, awserr.Permanent},
		"too large":                   {[]string{"ItemCollectionSizeLimitExceeded"}, awserr.Permanent},
		"denied":                      {[]string{"AccessDenied"}, awserr.Denied},
		"nothing that it could be of": {[]string{"None", ""}, awserr.Busy},
		"none":                        {nil, awserr.Busy},
	} {
		if got := awserr.OfReasons(tc.reasons...); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestOfFailure(t *testing.T) {
	for _, tc := range []struct {
		reason, detail string
		want           awserr.Class
	}{
		{"RESOURCE:CPU", "", awserr.Capacity},
		{"RESOURCE:ENI", "", awserr.Capacity},
		{"LOCATION", "", awserr.Capacity},
		{"Capacity is unavailable at this time. Please try again later or in a different availability zone", "", awserr.Capacity},
		{"You've reached the limit on the number of vCPUs you can run concurrently", "", awserr.Quota},
		{"You’ve reached the limit on the number of tasks you can run concurrently", "", awserr.Quota},
		{"Rate exceeded", "", awserr.Throttled},
		{"InternalError", "Rate exceeded (ErrorCode: Throttling)", awserr.Throttled},
		{"MISSING", "", awserr.NotFound},
		{"ATTRIBUTE", "", awserr.Permanent},
		{"INACTIVE", "", awserr.Permanent},
		{"AGENT", "", awserr.Unavailable},
		{"something new", "", awserr.Unavailable},
		{"", "", awserr.Unavailable},
	} {
		if got := awserr.OfFailure(tc.reason, tc.detail); got != tc.want {
			t.Errorf("%q, %q: got %q, want %q", tc.reason, tc.detail, got, tc.want)
		}
	}
}

func TestCodeAndMessage(t *testing.T) {
	for _, tc := range []struct {
		err           error
		code, message string
	}{
		{nil, "", ""},
		{errors.New("plain"), "", "plain"},
		{answered(400, generic("com.amazonaws.ecs#ClientException", "no")), "ClientException", "no"},
		{answered(400, generic("AWS.SimpleQueueService.NonExistentQueue", "gone")), "NonExistentQueue", "gone"},
		{answered(400, generic("ThrottlingException:http://internal.amazon.com/coral/", "")), "ThrottlingException", "ThrottlingException:http://internal.amazon.com/coral/"},
		{answered(400, &ecstypes.ConflictException{Message: aws.String("used")}), "ConflictException", "used"},
	} {
		if code, message := awserr.Code(tc.err), awserr.Message(tc.err); code != tc.code || message != tc.message {
			t.Errorf("%v: got %q and %q, want %q and %q", tc.err, code, message, tc.code, tc.message)
		}
	}
}

func TestTransient_NamesWhatMaySucceedByItself(t *testing.T) {
	for class, want := range map[awserr.Class]bool{
		awserr.None: false, awserr.Permanent: false, awserr.Conflict: false, awserr.LostRace: false, awserr.NotFound: false,
		awserr.Denied: false, awserr.Throttled: true, awserr.Capacity: true, awserr.Quota: true, awserr.Unavailable: true,
		awserr.Lost: true, awserr.Busy: true,
	} {
		if got := class.Transient(); got != want {
			t.Errorf("%q: got %t, want %t", class, got, want)
		}
	}
}
