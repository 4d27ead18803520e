// Decode a part of a JPEG with libjpeg: columns beside it are skipped, rows below it are not read. The Huffman codes of
// baseline files are read by our own reader; libjpeg computes the pixels from them.

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

#include "huffman.h"
#include "resize.h"

namespace {

constexpr int LINES = 4;

struct Errors {
    jpeg_error_mgr manager;  // must be first: libjpeg has its address
    std::jmp_buf back;
};

void leave(j_common_ptr image) {
    std::longjmp(reinterpret_cast<Errors*>(image->err)->back, 1);
}

void handle_message(j_common_ptr image, int level) {
    if (level < 0) leave(image);  // a warning: the file is broken, so let PIL decode it
}

void quiet(j_common_ptr) {}

void prepare(jpeg_decompress_struct& image, Errors& errors) {
    std::memset(&image, 0, sizeof image);  // so that it can be destroyed even if it was never created
    image.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave;
    errors.manager.emit_message = handle_message;
    errors.manager.output_message = quiet;
}

// Run `body` on the image; returns false if libjpeg reports an error or a warning.
template <typename Body>
bool with_picture(const uint8_t* data, std::size_t bytes, Body body) {
    jpeg_decompress_struct image;
    Errors errors;
    prepare(image, errors);
    if (setjmp(errors.back)) {
        jpeg_destroy_decompress(&image);
        return false;
    }
    jpeg_create_decompress(&image);
    jpeg_mem_src(&image, const_cast<uint8_t*>(data), static_cast<unsigned long>(bytes));
    const bool done = body(image);
    jpeg_destroy_decompress(&image);
    return done;
}

#if JPEG_LIB_VERSION >= 70
int block_side(const jpeg_component_info& component) { return component.DCT_h_scaled_size; }
int least_block_side(const jpeg_decompress_struct& image) { return image.min_DCT_h_scaled_size; }
#else
int block_side(const jpeg_component_info& component) { return component.DCT_scaled_size; }
int least_block_side(const jpeg_decompress_struct& image) { return image.min_DCT_scaled_size; }
#endif

// How the entropy decoder of libjpeg begins, in every version; the header that says so is not always installed.
struct EntropyDecoder {
    void (*start_pass)(j_decompress_ptr);
    boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
};

// Memory that is freed with the image.
void* allocate(jpeg_decompress_struct& image, std::size_t size) {
    return (*image.mem->alloc_large)(reinterpret_cast<j_common_ptr>(&image), JPOOL_IMAGE, size);
}

// Reads the codes of one baseline image in place of libjpeg.
class Reader {
   public:
    static bool can_read(jpeg_decompress_struct& image) {
        if (jpeg_has_multiple_scans(&image) || image.arith_code || image.data_precision != 8) return false;
        return std::all_of(image.cur_comp_info, image.cur_comp_info + image.comps_in_scan, [&](const auto* component) {
            return image.dc_huff_tbl_ptrs[component->dc_tbl_no] && image.ac_huff_tbl_ptrs[component->ac_tbl_no];
        });
    }

    // `from` and `columns` are what jpeg_crop_scanline returned.
    void take_over(jpeg_decompress_struct& image, JDIMENSION from, JDIMENSION columns) {
        const int wide = image.comps_in_scan == 1 ? 1 : image.max_h_samp_factor;
        const auto unit = static_cast<unsigned>(wide * least_block_side(image));
        first = from / unit;
        last = (from + columns - 1) / unit;
        column = units = restarts = 0;
        next = image.src->next_input_byte;
        end = next + image.src->bytes_in_buffer;
        scan = static_cast<uint8_t*>(allocate(image, image.src->bytes_in_buffer + huffman::PADDING));
        copy_to_marker();
        for (int i = 0; i < image.comps_in_scan; i++) {
            const jpeg_component_info& component = *image.cur_comp_info[i];
            const JHUFF_TBL &one = *image.dc_huff_tbl_ptrs[component.dc_tbl_no],
                            &other = *image.ac_huff_tbl_ptrs[component.ac_tbl_no];
            parts[i] = {&dc[component.dc_tbl_no], &ac[component.ac_tbl_no], block_side(component) > 1, 0};
            parts[i].dc->build(one.bits, one.huffval);
            parts[i].ac->build(other.bits, other.huffval);
        }
        image.client_data = this;
        reinterpret_cast<EntropyDecoder*>(image.entropy)->decode_mcu = read_unit;
    }

   private:
    struct Component {
        huffman::Codes* dc;
        huffman::ValueCodes* ac;
        bool has_details;  // or each of its blocks is one pixel
        int value;         // the first of the block before
    };

    static boolean read_unit(j_decompress_ptr image, JBLOCKROW* blocks) {
        Reader& reader = *static_cast<Reader*>(image->client_data);
        if (!reader.read(*image, blocks)) leave(reinterpret_cast<j_common_ptr>(image));
        return TRUE;
    }

    bool read(const jpeg_decompress_struct& image, JBLOCKROW* blocks) {
        if (image.restart_interval && units == image.restart_interval && !restart()) return false;
        const bool seen = blocks && column >= first && column <= last;
        units++;
        if (++column == image.MCUs_per_row) column = 0;
        for (int i = 0; i < image.blocks_in_MCU; i++)
            if (!read_block(parts[image.MCU_membership[i]], seen ? *blocks[i] : nullptr)) return false;
        return !in.is_past_the_end();
    }

    bool read_block(Component& part, JCOEF* block) {
        int difference;
        if (!part.dc->read_difference(in, difference)) return false;
        part.value = static_cast<JCOEF>(part.value + difference);
        if (block) block[0] = static_cast<JCOEF>(part.value);
        return block && part.has_details ? part.ac->read(in, block) : part.ac->skip(in);
    }

    bool restart() {
        if (!in.is_at_the_end() || end - next < 2 || next[1] != 0xd0 + restarts % 8) return false;
        next += 2;
        restarts++;
        units = 0;
        for (Component& part : parts) part.value = 0;
        copy_to_marker();
        return true;
    }

    // Copy the bytes up to the next marker, without the zeros that follow each FF.
    void copy_to_marker() {
        uint8_t* to = scan;
        while (next < end) {
            const void* found = std::memchr(next, 0xff, static_cast<std::size_t>(end - next));
            const auto* stop = found ? static_cast<const uint8_t*>(found) : end;
            std::memcpy(to, next, static_cast<std::size_t>(stop - next));
            to += stop - next;
            next = stop;
            if (end - next < 2 || next[1] != 0) break;
            *to++ = 0xff;
            next += 2;
        }
        std::memset(to, 0, huffman::PADDING);
        in = huffman::Bits(scan, static_cast<std::size_t>(to - scan));
    }

    huffman::Bits in;          // up to the next marker, in `scan`
    huffman::Codes dc[NUM_HUFF_TBLS];
    huffman::ValueCodes ac[NUM_HUFF_TBLS];
    Component parts[MAX_COMPS_IN_SCAN];
    const uint8_t *next, *end;  // of the file
    uint8_t* scan;
    unsigned first, last;  // of the units in a row, those that are seen
    unsigned column, units, restarts;
};

bool usual(const jpeg_decompress_struct& image) {
    return image.jpeg_color_space == JCS_YCbCr || image.jpeg_color_space == JCS_GRAYSCALE;
}

struct Part {
    int shrink, wide, high, left, top, width, height;  // as in `jpeg_part`
};

// Decode a part of an image: `make_receiver(image)` gives a function that is called with each row of it.
template <typename MakeReceiver>
bool decode(const uint8_t* data, std::size_t bytes, const Part& part, MakeReceiver make_receiver) {
    if (part.left < 0 || part.top < 0 || part.width <= 0 || part.height <= 0) return false;
    if (part.width > part.wide - part.left || part.height > part.high - part.top) return false;
    Reader reader;
    return with_picture(data, bytes, [&](jpeg_decompress_struct& image) {
        jpeg_read_header(&image, TRUE);
        if (!usual(image)) return false;
        image.out_color_space = JCS_RGB;
        image.scale_num = 1;
        image.scale_denom = static_cast<unsigned>(part.shrink);
        jpeg_start_decompress(&image);
        if (static_cast<int>(image.output_width) != part.wide || static_cast<int>(image.output_height) != part.high)
            return false;
        // Colours that are interpolated need neighbours: one more block gives the same edges as the whole image.
        const int margin = image.max_h_samp_factor > 1 ? 16 : 0, right = part.left + part.width;
        JDIMENSION from = static_cast<JDIMENSION>(std::max(part.left - margin, 0));
        JDIMENSION columns = static_cast<JDIMENSION>(std::min(right + margin, part.wide)) - from;
        jpeg_crop_scanline(&image, &from, &columns);  // moves `from` to the left, to where a block begins
        if (Reader::can_read(image)) reader.take_over(image, from, columns);
        auto receive = make_receiver(image);
        JSAMPROW lines[LINES];
        for (JSAMPROW& line : lines) {
            line = static_cast<JSAMPROW>(allocate(image, 3 * columns + 40 + resize::BEHIND));
            line += 8 + (32 - reinterpret_cast<std::uintptr_t>(line) % 32) % 32;  // aligned rows would bypass the cache
        }
        if (part.top > 0) jpeg_skip_scanlines(&image, static_cast<JDIMENSION>(part.top));
        for (int y = 0; y < part.height;) {
            const int some = static_cast<int>(jpeg_read_scanlines(&image, lines, LINES));
            for (int i = 0; i < some && y < part.height; i++, y++)
                receive(lines[i] + 3 * (static_cast<JDIMENSION>(part.left) - from));
        }
        return true;
    });
}

}  // namespace

// Width and height of an ordinary image, one that libjpeg converts to RGB, and whether it has EXIF, which may ask to
// turn it. Returns whether it is ordinary.
extern "C" int jpeg_header(const uint8_t* data, std::size_t bytes, int* found) {
    return with_picture(data, bytes, [=](jpeg_decompress_struct& image) {
        jpeg_save_markers(&image, JPEG_APP0 + 1, 4);
        jpeg_read_header(&image, TRUE);
        found[0] = static_cast<int>(image.image_width);
        found[1] = static_cast<int>(image.image_height);
        found[2] = 0;
        for (jpeg_saved_marker_ptr marker = image.marker_list; marker; marker = marker->next)
            if (marker->data_length >= 4 && std::memcmp(marker->data, "Exif", 4) == 0) found[2] = 1;
        return usual(image);
    });
}

// Decode width x height pixels from (left, top), in RGB, of the image reduced by 1, 2, 4 or 8, which then has
// wide x high pixels. Returns whether that worked.
extern "C" int jpeg_part(const uint8_t* data, std::size_t bytes, int shrink, int wide, int high, int left, int top,
                         int width, int height, uint8_t* out) {
    const std::size_t row = 3 * static_cast<std::size_t>(width);
    return decode(data, bytes, {shrink, wide, high, left, top, width, height}, [=](jpeg_decompress_struct&) {
        return [=, to = out](const uint8_t* pixels) mutable {
            std::memcpy(to, pixels, row);
            to += row;
        };
    });
}

// Decode such a part, scaled to side x side pixels, each of `across` x `down` pixels of the part, and mirrored or not.
extern "C" int jpeg_square(const uint8_t* data, std::size_t bytes, int shrink, int wide, int high, int left, int top,
                           int width, int height, double across, double down, int side, int mirrored, uint8_t* out) {
    return decode(data, bytes, {shrink, wide, high, left, top, width, height}, [=](jpeg_decompress_struct& image) {
        const auto allocate = [&image](std::size_t size) { return ::allocate(image, size); };
        const resize::Filter x(width, side, across, allocate), y(height, side, down, allocate);
        resize::Square square(x, y, height, side, mirrored != 0, out, allocate);
        return [square](const uint8_t* pixels) mutable { square.add(pixels); };
    });
}
