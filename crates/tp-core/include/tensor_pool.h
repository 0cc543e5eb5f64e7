/*
 * SHM Tensor Pool: tensors between processes through shared memory, for C and C++.
 *
 * A ring has one writer and any number of readers, each in a process of its own; nobody waits for anybody.
 * The writer fills slots in turn and overwrites the oldest; a reader that was too slow notices and goes on.
 * These are the same bytes that the Python package tensor_pool reads and writes.
 *
 *     tp_tensor image;                                     tp_reader *reader; tp_view *view; tp_info info;
 *     tp_claim claim;                                      tp_reader_open(&ring, dirs, 1, 0, &reader);
 *     tp_frame frame = {0};                                for (;;) {
 *     int64_t shape[2] = {480, 640};                           if (tp_reader_poll(reader, &view, &info) == TP_NONE) {
 *     tp_writer_open(&ring, dirs, 1, &writer);                     tp_reader_wait(reader, 100000000);
 *     tp_tensor_contiguous(TP_UINT16, 2, shape, &image);           continue;
 *     frame.tensor = image;                                    }
 *     tp_writer_claim(writer, 614400, NULL, &claim);           look_at(info.payload, info.length);
 *     grab_into(claim.payload);                                if (tp_view_still_valid(view) == TP_OK) count();
 *     tp_writer_commit(writer, &claim, 614400, &frame);        tp_view_release(view);
 *     tp_writer_ring(writer, UINT32_MAX);                  }
 *
 * Link with libtensor_pool.a and -lpthread -ldl -lm (`make capi` builds it). Linux, little-endian, 64 bits.
 *
 * Rules
 *  - Functions return a status: TP_OK, another result above 0, or an error below 0; tp_last_error() has the
 *    text of the calling thread's last error. Results are stored only when the status is TP_OK (a handle
 *    that could not be opened is set to null).
 *  - Null pointers and numbers out of range are errors. Pointers that point nowhere and handles that were
 *    closed can't be recognized.
 *  - Handles may be used from every thread; calls with the same handle wait for each other (waiting for a
 *    frame excepted). Don't use them in a forked child: open the ring again there.
 *  - No function throws, unwinds, exits or calls back.
 */
#ifndef TENSOR_POOL_H
#define TENSOR_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- results ---------------------------------------------------------------------------------------- */

typedef enum tp_status {
    TP_OK = 0,
    TP_NONE = 1,                 /* nothing there yet, or nobody rang in time */
    TP_DROPPED = 2,              /* the frame can't be taken; tp_last_error() is the name of the reason */
    TP_ERROR_ARGUMENT = -1,      /* null, not UTF-8, or out of range */
    TP_ERROR_GEOMETRY = -2,      /* the numbers make no ring */
    TP_ERROR_URI = -3,           /* not a region URI */
    TP_ERROR_NOT_CONTAINED = -4, /* a path leads out of the allowed directories */
    TP_ERROR_REGION = -5,        /* a file is not the region that was announced, or it has a writer already */
    TP_ERROR_NO_SPACE = -6,      /* no room for the files */
    TP_ERROR_IO = -7,            /* a system call failed */
    TP_ERROR_TOO_LARGE = -8,     /* longer than the largest payload slot: dropped, never waited for */
    TP_ERROR_CLAIM = -9,         /* finished already, not the oldest, no slot left, or a sequence number too low */
    TP_ERROR_LAYOUT = -10,       /* the tensor can't be described */
    TP_ERROR_ABI = -11,          /* this header and the library don't fit */
    TP_ERROR_INTERNAL = -12      /* a bug of the library; stderr has the details. Close the handle */
} tp_status;

/* The text of the calling thread's last error; empty when there was none. Valid until its next error. */
const char *tp_last_error(void);

/* Number of the interface that this header describes. It changes when a program must be compiled again. */
#define TP_ABI_VERSION 1

/* TP_OK if the library fits: tp_check_abi(TP_ABI_VERSION). Ask once, at start. */
int tp_check_abi(uint32_t header_version);

/* The version of the library, such as "0.1.0". */
const char *tp_version(void);

/* --- rings ------------------------------------------------------------------------------------------ */

/* A payload pool. `uri` is not looked at by tp_ring_create. */
typedef struct tp_pool {
    uint32_t pool_id;      /* at most 65535, unique in the ring */
    uint32_t stride_bytes; /* longest payload; 64 times a power of two */
    const char *uri;       /* shm:file?path=<absolute path>[|require_hugepages=true|false] */
} tp_pool;

/* A ring as it is announced: its numbers and where its files are. */
typedef struct tp_address {
    uint32_t stream_id;
    uint32_t nslots; /* a power of two */
    uint64_t epoch;
    const char *header_uri; /* not looked at by tp_ring_create */
    const tp_pool *pools;
    size_t npools; /* 1 to 256 */
} tp_address;

#define TP_CREATE_SPARSE 1u    /* take memory when it is first used, not now */
#define TP_CREATE_HUGEPAGES 2u /* refuse unless the directory is on hugetlbfs */

/*
 * Makes the files of a new ring in an existing directory, for tests and for deployments without a driver:
 * <directory>/header.ring and <directory>/<pool_id>.pool. Leaves nothing behind when it fails. `mode` has
 * the permission bits of the files; 0 stands for 0600.
 */
int tp_ring_create(const char *directory, const tp_address *ring, uint32_t mode, uint32_t flags);

/*
 * Writes the URI of a file that tp_ring_create makes in `directory`: of pool `pool_id`, or of the header ring
 * when that is negative. `directory` is an absolute path; `flags` are those of tp_ring_create; `out` has `out_bytes`
 * bytes.
 */
int tp_ring_uri(const char *directory, int32_t pool_id, uint32_t flags, char *out, size_t out_bytes);

/* --- tensors and frames ----------------------------------------------------------------------------- */

#define TP_MAX_DIMS 8

typedef enum tp_dtype {
    TP_UINT8 = 1,
    TP_INT8 = 2,
    TP_UINT16 = 3,
    TP_INT16 = 4,
    TP_UINT32 = 5,
    TP_INT32 = 6,
    TP_UINT64 = 7,
    TP_INT64 = 8,
    TP_FLOAT32 = 9,
    TP_FLOAT64 = 10,
    TP_BOOLEAN = 11, /* one byte an element */
    TP_BYTES = 13,
    TP_BIT = 14 /* one byte an element */
} tp_dtype;

typedef enum tp_major_order { TP_ROW_MAJOR = 1, TP_COLUMN_MAJOR = 2 } tp_major_order;

typedef enum tp_progress_unit { TP_PROGRESS_NONE = 0, TP_PROGRESS_ROWS = 1, TP_PROGRESS_COLUMNS = 2 } tp_progress_unit;

/* What the bytes of a frame mean. */
typedef struct tp_tensor {
    int32_t dtype;         /* tp_dtype */
    int32_t major_order;   /* tp_major_order */
    int32_t progress_unit; /* tp_progress_unit */
    uint32_t ndims;        /* 1 to TP_MAX_DIMS; entries behind it are ignored */
    int64_t shape[TP_MAX_DIMS];
    int64_t strides[TP_MAX_DIMS]; /* in bytes; 0 stands for contiguous. Readers get them spelled out */
} tp_tensor;

/* Describes a contiguous, row-major tensor. */
int tp_tensor_contiguous(int32_t dtype, uint32_t ndims, const int64_t *shape, tp_tensor *out);

/* Bytes from the first to the end of the last element: how much to claim. */
int tp_tensor_extent(const tp_tensor *tensor, uint64_t *out);

/* What a producer says about a frame. */
typedef struct tp_frame {
    tp_tensor tensor;
    uint64_t timestamp_ns; /* when the payload was captured */
    uint32_t meta_version; /* version of the metadata that applies; 0 without metadata */
    uint32_t reserved;     /* 0 */
} tp_frame;

/* --- writing ---------------------------------------------------------------------------------------- */

/* The one writer of a ring. */
typedef struct tp_writer tp_writer;

/*
 * Opens and maps a ring for writing, and goes on behind its newest frame. Files are opened only below the
 * given directories, and only if they are the regions that `ring` describes. Refused while another process, or
 * another handle of this one, has the ring open for writing: the header file is locked until tp_writer_close or the
 * end of the process (and of children that were forked meanwhile, when the process was killed).
 */
int tp_writer_open(const tp_address *ring, const char *const *directories, size_t ndirectories, tp_writer **out);

/* Unmaps the ring; open claims are given up and their payloads must not be touched any more. Null is fine. */
void tp_writer_close(tp_writer *writer);

/* The sequence number of the next frame, and the longest payload that fits. */
int tp_writer_next_seq(const tp_writer *writer, uint64_t *out);
int tp_writer_max_length(const tp_writer *writer, uint64_t *out);

/* Touches every page now rather than in the first frames. TP_ERROR_NO_SPACE where a frame would end in a SIGBUS. */
int tp_writer_prefault(const tp_writer *writer);

/* A slot that is being filled. */
typedef struct tp_claim {
    uint64_t seq;
    void *payload; /* `length` bytes to write, aligned to 64; readers don't see them before the commit */
    uint64_t length;
} tp_claim;

/*
 * Takes the next slot for a payload of `length` bytes, or that of `*seq` (above all before it) when `seq` is
 * not null. The old frame in the slot is gone from here on. Claims are committed in the order in which they
 * were made; at most one lap of the ring can be open.
 */
int tp_writer_claim(tp_writer *writer, uint64_t length, const uint64_t *seq, tp_claim *out);

/* Writes the header before the payload is complete, for producers that report progress. */
int tp_writer_header(tp_writer *writer, const tp_claim *claim, uint64_t length, const tp_frame *frame);

/*
 * Publishes a claim of which the first `length` bytes are used. Ring the doorbell afterwards. On error the
 * claim stays open.
 */
int tp_writer_commit(tp_writer *writer, const tp_claim *claim, uint64_t length, const tp_frame *frame);

/* Gives a claim up: no reader will accept the slot, and its number is skipped. */
int tp_writer_abort(tp_writer *writer, const tp_claim *claim);

/* Copies a frame in, commits it and rings the doorbell. `seq` gets its number, unless it is null. */
int tp_writer_publish(tp_writer *writer, const void *payload, uint64_t length, const tp_frame *frame, uint64_t *seq);

/* Rings the doorbell: wakes up to `wake` sleeping readers, UINT32_MAX for all of them. */
int tp_writer_ring(tp_writer *writer, uint32_t wake);

/* Says that the ring is alive, without waking anybody; at least once a second while there are no frames. */
int tp_writer_refresh(tp_writer *writer);

/* --- reading ---------------------------------------------------------------------------------------- */

/* A reader of a ring. It never writes. */
typedef struct tp_reader tp_reader;

/* A frame that was found. */
typedef struct tp_view tp_view;

#define TP_READ_COPIES 1u         /* private copies by system calls: slower, survives files that shrink */
#define TP_READ_RELAXED_STRIDE 2u /* accept pool strides that are any multiple of 64 */

/* What a frame is. */
typedef struct tp_info {
    uint64_t seq;
    const void *payload; /* null when it is empty; valid until tp_view_release */
    uint64_t length;     /* bytes of the payload; may be more than tp_tensor_extent of its tensor: padding behind it */
    tp_frame frame;
} tp_info;

/* Opens, checks and maps a ring for reading; the first poll looks for frame 0. */
int tp_reader_open(const tp_address *ring, const char *const *directories, size_t ndirectories, uint32_t flags,
                   tp_reader **out);

/* Closes a reader. Its views stay usable until they are released. Null is fine. */
void tp_reader_close(tp_reader *reader);

/*
 * Takes the next frame: TP_OK with a view to release (`info` may be null), or TP_NONE. What was missed on the
 * way is counted.
 *
 * The payload lies in shared memory and may be overwritten at any time. Whatever was computed from it counts
 * only if tp_view_still_valid says so afterwards; or let tp_view_copy do both.
 */
int tp_reader_poll(tp_reader *reader, tp_view **view, tp_info *info);

/* Reads frame `seq`: TP_OK, or TP_DROPPED when it isn't there (any more). */
int tp_reader_read(tp_reader *reader, uint64_t seq, tp_view **view, tp_info *info);

/*
 * Sleeps until the producer rings, for at most `timeout_ns`: TP_OK, or TP_NONE. A ring since the last poll
 * counts, so nothing is missed between polling and waiting. Signals end it early, with TP_OK.
 */
int tp_reader_wait(tp_reader *reader, uint64_t timeout_ns);

/* The same for several readers at once. */
int tp_wait_any(tp_reader *const *readers, size_t nreaders, uint64_t timeout_ns);

/* Goes to frame `seq`; what lies between counts neither as gap nor as drop. */
int tp_reader_seek(tp_reader *reader, uint64_t seq);

/* The newest frame in the ring: TP_OK, or TP_NONE when there is none. */
int tp_reader_newest(const tp_reader *reader, uint64_t *out);

/*
 * How many frames were dropped for a reason, by the name that TP_DROPPED leaves in tp_last_error(); or how
 * many were "late" for whatever reason, or how many sequence numbers were a "gap".
 */
int tp_reader_drops(const tp_reader *reader, const char *reason, uint64_t *out);

/* What a view shows. */
int tp_view_info(const tp_view *view, tp_info *out);

/*
 * TP_OK if all that was read through the view so far is the frame, TP_DROPPED if it was overwritten.
 *
 * This, or tp_view_copy of the whole payload, ends the first use of a frame. One that is lost in it counts as a drop;
 * one that is lost later was used already. After either the next poll goes nearer to the newest frame, if the one that
 * was lost is the one taken last: what follows it would be lost next.
 */
int tp_view_still_valid(const tp_view *view);

/* Copies the payload, or its first `bytes` bytes: TP_OK if the copy is whole, TP_DROPPED if it is garbage. */
int tp_view_copy(const tp_view *view, void *target, uint64_t bytes);

/* Releases a view. Null is fine. */
void tp_view_release(tp_view *view);

#ifdef __cplusplus
}
#endif

#endif
