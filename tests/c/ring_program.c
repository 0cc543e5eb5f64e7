/*
 * A producer and a consumer in C, driven by tests/integration/test_c_library.py. Also compiled as C++.
 *
 *     ring_program check                                  the interface refuses what it must
 *     ring_program create DIR STREAM EPOCH NSLOTS POOLS   make a ring; POOLS is ID:STRIDE[,ID:STRIDE...]
 *     ring_program write  DIR STREAM EPOCH NSLOTS POOLS   publish the frames described on stdin
 *     ring_program read   DIR STREAM EPOCH NSLOTS POOLS COUNT view|copy|system   describe COUNT frames on stdout
 *
 * A frame is one line of numbers, then its payload in hex ("-" when it is empty):
 *
 *     SEQ DTYPE ORDER UNIT TIMESTAMP META NDIMS SHAPE... STRIDES... LENGTH HEX
 *
 * `write` copies frames with an even number (tp_writer_publish, when the number is the next one) and writes
 * the others in place (tp_writer_claim and tp_writer_commit).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor_pool.h"

#define MAX_TEST_POOLS 8
#define MAX_TEST_URI 512
#define MAX_TEST_PAYLOAD (1u << 20)

/* The sizes that the library was built with. */
typedef char tensor_has_its_size[sizeof(tp_tensor) == 144 ? 1 : -1];
typedef char frame_has_its_size[sizeof(tp_frame) == 160 ? 1 : -1];
typedef char info_has_its_size[sizeof(tp_info) == 184 ? 1 : -1];
typedef char claim_has_its_size[sizeof(tp_claim) == 24 ? 1 : -1];

static unsigned char payload_bytes[MAX_TEST_PAYLOAD];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tp_last_error());
    exit(1);
}

static void must(int status, const char *what) {
    if (status != TP_OK) {
        fail(what);
    }
}

static void expect(int status, int wanted, const char *what) {
    if (status != wanted) {
        fprintf(stderr, "%s: status %d instead of %d, %s\n", what, status, wanted, tp_last_error());
        exit(1);
    }
}

/* --- where the ring is ------------------------------------------------------------------------------ */

typedef struct ring_place {
    tp_address address;
    const char *directories[1];
    tp_pool pools[MAX_TEST_POOLS];
    char header_uri[MAX_TEST_URI];
    char pool_uris[MAX_TEST_POOLS][MAX_TEST_URI];
} ring_place;

static void find_ring(ring_place *place, char **arguments) {
    char *cursor = arguments[4];
    memset(place, 0, sizeof *place);
    place->directories[0] = arguments[0];
    place->address.stream_id = (uint32_t)strtoul(arguments[1], NULL, 10);
    place->address.epoch = strtoull(arguments[2], NULL, 10);
    place->address.nslots = (uint32_t)strtoul(arguments[3], NULL, 10);
    must(tp_ring_uri(arguments[0], -1, 0, place->header_uri, MAX_TEST_URI), "header URI");
    place->address.header_uri = place->header_uri;
    place->address.pools = place->pools;
    while (*cursor != '\0' && place->address.npools < MAX_TEST_POOLS) {
        size_t i = place->address.npools++;
        tp_pool *pool = &place->pools[i];
        pool->pool_id = (uint32_t)strtoul(cursor, &cursor, 10);
        pool->stride_bytes = (uint32_t)strtoul(cursor + 1, &cursor, 10);
        must(tp_ring_uri(arguments[0], (int32_t)pool->pool_id, 0, place->pool_uris[i], MAX_TEST_URI), "pool URI");
        pool->uri = place->pool_uris[i];
        cursor += *cursor == ',';
    }
}

/* --- frames as lines of text ------------------------------------------------------------------------ */

static int read_number(int64_t *out) {
    return scanf("%" SCNd64, out);
}

/* Reads a frame; 0 at the end of the input. */
static int read_frame(tp_frame *frame, uint64_t *seq, uint64_t *length) {
    int64_t number, i;
    char digits[3] = {0, 0, 0};
    memset(frame, 0, sizeof *frame);
    if (scanf("%" SCNu64, seq) != 1) {
        return 0;
    }
    if (scanf("%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNu64 "%" SCNu32 "%" SCNu32, &frame->tensor.dtype,
              &frame->tensor.major_order, &frame->tensor.progress_unit, &frame->timestamp_ns,
              &frame->meta_version, &frame->tensor.ndims) != 6 ||
        frame->tensor.ndims > TP_MAX_DIMS) {
        fail("not a frame");
    }
    for (i = 0; i < 2 * (int64_t)frame->tensor.ndims; i++) {
        if (read_number(&number) != 1) {
            fail("not a shape");
        }
        if (i < (int64_t)frame->tensor.ndims) {
            frame->tensor.shape[i] = number;
        } else {
            frame->tensor.strides[i - (int64_t)frame->tensor.ndims] = number;
        }
    }
    if (scanf("%" SCNu64 " ", length) != 1 || *length > MAX_TEST_PAYLOAD) {
        fail("not a length");
    }
    for (i = 0; i < (int64_t)*length; i++) {
        if (scanf("%2c", digits) != 1) {
            fail("not a payload");
        }
        payload_bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    if (*length == 0 && scanf("%1c", digits) != 1) {
        fail("not an empty payload");
    }
    return 1;
}

static void print_frame(const tp_info *info, const unsigned char *payload) {
    const tp_tensor *tensor = &info->frame.tensor;
    uint64_t i;
    printf("%" PRIu64 " %" PRId32 " %" PRId32 " %" PRId32 " %" PRIu64 " %" PRIu32 " %" PRIu32, info->seq,
           tensor->dtype, tensor->major_order, tensor->progress_unit, info->frame.timestamp_ns,
           info->frame.meta_version, tensor->ndims);
    for (i = 0; i < tensor->ndims; i++) {
        printf(" %" PRId64, tensor->shape[i]);
    }
    for (i = 0; i < tensor->ndims; i++) {
        printf(" %" PRId64, tensor->strides[i]);
    }
    printf(" %" PRIu64 " %s", info->length, info->length == 0 ? "-" : "");
    for (i = 0; i < info->length; i++) {
        printf("%02x", payload[i]);
    }
    printf("\n");
}

/* --- roles ------------------------------------------------------------------------------------------ */

static void write_frames(const ring_place *place) {
    tp_writer *writer = NULL;
    tp_frame frame;
    tp_claim claim;
    uint64_t seq, next, length, longest;
    must(tp_writer_open(&place->address, place->directories, 1, &writer), "open for writing");
    must(tp_writer_max_length(writer, &longest), "longest payload");
    while (read_frame(&frame, &seq, &length)) {
        must(tp_writer_next_seq(writer, &next), "next number");
        if (seq == next && seq % 2 == 0) {
            must(tp_writer_publish(writer, payload_bytes, length, &frame, &next), "publish");
            expect(next == seq ? TP_OK : TP_DROPPED, TP_OK, "number of the published frame");
        } else {
            must(tp_writer_claim(writer, length, &seq, &claim), "claim");
            memcpy(claim.payload, payload_bytes, (size_t)length);
            must(tp_writer_commit(writer, &claim, length, &frame), "commit");
            must(tp_writer_ring(writer, UINT32_MAX), "ring");
        }
    }
    expect(tp_writer_claim(writer, longest + 1, NULL, &claim), TP_ERROR_TOO_LARGE, "claim too much");
    tp_writer_close(writer);
}

static void read_frames(const ring_place *place, uint64_t count, const char *mode) {
    tp_reader *reader = NULL;
    tp_view *view = NULL;
    tp_info info;
    uint32_t flags = strcmp(mode, "system") == 0 ? TP_READ_COPIES : 0;
    must(tp_reader_open(&place->address, place->directories, 1, flags, &reader), "open for reading");
    printf("ready\n");
    fflush(stdout);
    while (count > 0) {
        int status = tp_reader_poll(reader, &view, &info);
        if (status == TP_NONE) {
            if (tp_reader_wait(reader, 50u * 1000000u) < 0) {
                fail("wait");
            }
            continue;
        }
        must(status, "poll");
        if (info.length > MAX_TEST_PAYLOAD) {
            fail("frame too long for this program");
        }
        if (strcmp(mode, "copy") == 0) {
            must(tp_view_copy(view, payload_bytes, info.length), "copy");
        } else if (info.length > 0) {
            memcpy(payload_bytes, info.payload, (size_t)info.length);
        }
        must(tp_view_still_valid(view), "second look");
        tp_view_release(view);
        print_frame(&info, payload_bytes);
        count--;
    }
    tp_reader_close(reader);
}

static void check_interface(void) {
    tp_tensor tensor;
    tp_writer *writer = NULL;
    tp_reader *reader = NULL;
    tp_address nothing;
    int64_t shape[2] = {480, 640};
    uint64_t bytes = 0;
    memset(&nothing, 0, sizeof nothing);
    expect(tp_check_abi(TP_ABI_VERSION), TP_OK, "interface");
    expect(tp_check_abi(TP_ABI_VERSION + 1), TP_ERROR_ABI, "another interface");
    must(tp_tensor_contiguous(TP_UINT16, 2, shape, &tensor), "tensor");
    must(tp_tensor_extent(&tensor, &bytes), "extent");
    expect(bytes == 614400 ? TP_OK : TP_DROPPED, TP_OK, "extent of a tensor");
    expect(tp_tensor_contiguous(TP_UINT16, 0, shape, &tensor), TP_ERROR_LAYOUT, "no dimension");
    expect(tp_tensor_contiguous(TP_UINT16, 2, NULL, &tensor), TP_ERROR_ARGUMENT, "no shape");
    expect(tp_writer_open(NULL, NULL, 0, &writer), TP_ERROR_ARGUMENT, "no address");
    nothing.header_uri = "shm:file?path=/nowhere";
    expect(tp_writer_open(&nothing, NULL, 3, &writer), TP_ERROR_ARGUMENT, "null directories");
    expect(tp_writer_open(&nothing, NULL, 0, &writer), TP_ERROR_GEOMETRY, "no directories");
    expect(tp_reader_open(&nothing, NULL, 0, 77, &reader), TP_ERROR_ARGUMENT, "flags");
    expect(tp_reader_poll(NULL, NULL, NULL), TP_ERROR_ARGUMENT, "no reader");
    expect(strlen(tp_last_error()) > 0 ? TP_OK : TP_DROPPED, TP_OK, "text of an error");
    expect(writer == NULL && reader == NULL ? TP_OK : TP_DROPPED, TP_OK, "handles after errors");
    tp_writer_close(NULL);
    tp_reader_close(NULL);
    tp_view_release(NULL);
    printf("%s\n", tp_version());
}

int main(int count, char **arguments) {
    ring_place place;
    const char *role = count > 1 ? arguments[1] : "";
    if (strcmp(role, "check") == 0) {
        check_interface();
        return 0;
    }
    if (count < 7) {
        fprintf(stderr, "usage: see the top of ring_program.c\n");
        return 2;
    }
    find_ring(&place, arguments + 2);
    if (strcmp(role, "create") == 0) {
        must(tp_ring_create(arguments[2], &place.address, 0, 0), "create");
    } else if (strcmp(role, "write") == 0) {
        write_frames(&place);
    } else if (strcmp(role, "read") == 0 && count == 9) {
        read_frames(&place, strtoull(arguments[7], NULL, 10), arguments[8]);
    } else {
        fprintf(stderr, "unknown role %s\n", role);
        return 2;
    }
    return 0;
}
